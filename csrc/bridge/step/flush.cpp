// SPDX-License-Identifier: Apache-2.0
// Flush: a recorded graph goes to the engine, results come back to the host.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "base/error.h"
#include "bridge/backend/aten_backend.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/shard_device.h"
#include "bridge/python/gil.h"
#include "bridge/recorder/engine.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/step/assembled.h"
#include "bridge/step/fetch.h"
#include "bridge/step/plan_warnings.h"
#include "bridge/tensor/abstract.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"
#include "bridge/world/c10d_comm.h"
#include "runtime/data/check.h"

namespace spmdx::bridge {
namespace {

constexpr size_t kMaxNodes = 50'000;  // a longer trace is cut: memory and compile time stay bounded

struct LostValue : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What is said of a tensor whose value went with a step that failed.
std::exception_ptr lost_by(const std::exception_ptr& error) {
  std::string why;
  try {
    std::rethrow_exception(error);
  } catch (const LostValue&) {
    return error;  // the step read what had been lost before
  } catch (const c10::Error& e) {
    why = e.what_without_backtrace();
  } catch (const std::exception& e) {
    why = e.what();
  }
  return std::make_exception_ptr(
      LostValue("the value of this tensor was lost in a step that failed (" + why +
                "). Expected one that was computed. Give it a new value, or make the tensor again."));
}

DataRef result_data(const TensorType& type) {
  return planning_only() ? abstract_data(type) : std::make_shared<Data>(type);
}

// What the root goes back to; results of steps that were only planned are skipped.
DataRef computed_before(const Root& root) {
  const DataRef& previous = root.previous;
  return previous && previous->is_abstract() ? previous->fallback() : previous;
}

}  // namespace

// Plans a finished graph. Throws ShardingError; nothing has changed then.
PlannedPart RecorderState::planned(Graph done, std::vector<DataRef> sources, std::vector<RootRef> owners) {
  PlannedPart part{nullptr, std::move(sources), {}, std::move(owners)};
  for (const auto& output : done.outputs) part.outputs.push_back(result_data(done.value(output.value).type));
  for (size_t i = 0; i < part.owners.size(); ++i)
    part.outputs[i]->set_fallback(computed_before(root_of(part.owners[i])));
  if (part.outputs.empty()) return part;
  {
    NoGil no_gil;
    part.plan = engine().plan(done);
  }
  if (!part.plan->fallbacks.empty() || part.plan->repeat) mind(*part.plan);
  return part;
}

// Queues what was planned; the roots hold the results from now on. Nothing fails here. What a step overwrites must be
// held by nobody else, so that it may take the memory.
void RecorderState::send(std::vector<PlannedPart> parts) {
  for (const PlannedPart& part : parts) {
    for (size_t i = 0; i < part.owners.size(); ++i) {
      Root& root = root_of(part.owners[i]);
      root.previous = nullptr;
      root.current = {0, kNone, part.outputs[i]};
    }
  }
  send_rebound(parts);
  inputs.clear();
  input_of.clear();
  NoGil no_gil;
  for (PlannedPart& part : parts) {
    if (part.outputs.empty()) continue;
    if (planning_only())
      set_shardings(*part.plan, part.outputs);
    else
      engine().run(part.plan, std::move(part.sources), params, std::move(part.outputs));
  }
}

void RecorderState::submit() {
  const auto tied = gradients();
  std::vector<PlannedPart> parts;
  for (auto& owners : pending_by_mesh(tied)) {
    Graph done = finish(owners, tied);
    parts.push_back(planned(std::move(done), std::move(submitted), std::move(owners)));
  }
  send(std::move(parts));
}

void Recorder::flush(bool implicit) {
  note_use();
  Lock lock;
  check_failed();
  if (state_->graph.nodes.empty() && state_->inputs.empty() && !state_->annotated) return;
  {
    NoGil no_gil;
    engine().wait_for_room();  // here, where Ctrl-C changes nothing
  }
  if (implicit) ++state_->implicit_syncs;
  try {
    try {
      state_->submit();
    } catch (const ShardingError&) {
      state_->compute_unsharded();
      throw;
    }
  } catch (...) {
    state_->roll_back(lost_by(std::current_exception()));
    throw;
  }
  const bool more = state_->annotated;
  state_->reset();
  if (more) {  // data of another mesh
    state_->annotated = true;
    flush(implicit);
  }
  warn_of_plans();
}

void Recorder::cut_if_long() {
  if (state_->graph.nodes.size() > kMaxNodes) flush(true);
}

void Recorder::check_failed() {
  if (!has_unseen_failure()) return;
  Lock lock;
  if (!has_unseen_failure()) return;
  {
    NoGil no_gil;
    engine().wait();
  }
  forget_failure();
  try {
    engine().rethrow();
  } catch (...) {
    state_->roll_back(lost_by(std::current_exception()));
    throw;
  }
  state_->roll_back(nullptr);  // who read its results has seen the error
}

void Recorder::wait() {
  {
    NoGil no_gil;
    engine().wait();
  }
  check_failed();
  try {
    engine().rethrow();  // of a step that failed before its first op
  } catch (...) {
    Lock lock;
    state_->roll_back(lost_by(std::current_exception()));
    throw;
  }
}

std::exception_ptr Recorder::undo() {
  Lock lock;
  forget_failure();
  std::exception_ptr unseen;
  try {
    engine().rethrow();
  } catch (...) {
    unseen = std::current_exception();
  }
  state_->roll_back(std::make_exception_ptr(std::runtime_error(
      "this tensor was not computed before spmdx.runtime.recover(), which undoes what has failed and drops what had "
      "not begun. Expected a tensor of a step that ran. Make it again.")));
  return unseen;
}

at::Tensor Recorder::peek(const at::Tensor& tensor) {
  LazyTensor* lazy_tensor = as_lazy(tensor);
  internal_check(lazy_tensor, "materialise of a tensor that is not ours");
  DataRef data;
  at::Tensor held = tensor;
  {
    Lock lock;
    require_values(*lazy_tensor);
    if (lazy_tensor->chain()) held = make_tensor(lazy(read(*lazy_tensor)), share(meta_of(tensor)));
    Root& root = as_lazy(held)->root();
    if (!root.current.data || !(state_->graph.nodes.empty() || planning_only())) flush(true);
    data = root.current.data;
    internal_check(data != nullptr, "a flush left a live tensor without data");
    data = held_here(data);
  }
  KernelGuard kernels_only;
  const Shards* shards = nullptr;
  try {
    NoGil no_gil;
    shards = &data->wait();
  } catch (...) {
    if (!data->ready()) throw;  // the wait was broken off
    note_failure();             // also where no kernel ran, as when an input had failed before
    check_failed();
    throw;
  }
  at::Tensor whole = assembled(*data, *shards);
  if (check_modes().replicas && comm().processes().count > 1) {
    NoGil no_gil;
    compare_replicas(aten_backend().digest(buffer_of(whole)));
  }
  return whole;
}

at::Tensor Recorder::materialise(const at::Tensor& tensor) {
  at::Tensor whole = peek(tensor);
  KernelGuard kernels_only;
  // A copy of a tensor with holes or repeats is dense, in the order of its strides.
  const at::Tensor like = at::empty_like(meta_tensor(meta_of(tensor)));
  at::Tensor result = at::empty_strided(like.sizes(), like.strides(), whole.options());
  result.copy_(whole);
  return result;
}

PlanRef Recorder::plan_pending(const at::Tensor& tensor) {
  Lock lock;
  check_failed();
  const Root* wanted = &as_lazy(tensor)->root();
  const auto tied = state_->gradients();
  auto groups = state_->pending_by_mesh(tied);
  auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& owners) {
    return std::any_of(owners.begin(), owners.end(), [&](const RootRef& ref) { return &root_of(ref) == wanted; });
  });
  std::vector<RootRef>& owners = group == groups.end() ? groups.front() : *group;
  const Graph graph = state_->finish(owners, tied);
  if (graph.outputs.empty()) return nullptr;
  NoGil no_gil;
  return engine().plan(graph);
}

}  // namespace spmdx::bridge
