// SPDX-License-Identifier: Apache-2.0
// Flush: a recorded graph goes to the engine, results come back to the host.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

#include <atomic>

#include "base/error.h"
#include "bridge/aten_backend.h"
#include "bridge/compat.h"
#include "bridge/plan_only.h"
#include "bridge/recorder.h"
#include "bridge/shapes.h"
#include "runtime/comm.h"

namespace spmdx::bridge {
namespace {

constexpr size_t kMaxNodes = 50'000;  // a longer trace is cut: memory and compile time stay bounded

std::atomic<bool> step_failed{false};

std::exception_ptr note_and_translate(std::exception_ptr error, const Node& node) {
  step_failed = true;
  return lead_error(error, node.source, node.call->op);
}

DataRef result_data(const TensorType& type) {
  return planning_only() ? hollow_data(type) : std::make_shared<Data>(type);
}

// What the root goes back to; results of steps that were only planned are skipped.
DataRef computed_before(const Root& root) {
  const DataRef& previous = root.previous;
  return previous && previous->is_hollow() ? previous->fallback() : previous;
}

}  // namespace

// Queues a finished graph. `owners` are the roots of its outputs, in the same order; they hold its results from now on.
void Recorder::Impl::send(Graph done, std::vector<DataRef> sources, const std::vector<RootRef>& owners) {
  std::vector<DataRef> outputs;
  for (const auto& output : done.outputs) outputs.push_back(result_data(done.value(output.value).type));
  for (size_t i = 0; i < owners.size(); ++i) outputs[i]->set_fallback(computed_before(root_of(owners[i])));
  if (outputs.empty()) return;
  PlanRef plan;
  {
    NoGil no_gil;
    plan = engine().plan(done);
  }
  // From here on nothing fails. What the step overwrites must be held by nobody else, so that it may take the memory.
  for (size_t i = 0; i < owners.size(); ++i) {
    Root& root = root_of(owners[i]);
    root.previous = nullptr;
    root.current = {0, kNone, outputs[i]};
  }
  inputs.clear();
  input_of.clear();
  NoGil no_gil;
  if (planning_only())
    set_shardings(*plan, outputs);
  else
    engine().run(plan, std::move(sources), std::move(params), std::move(outputs));
}

void Recorder::Impl::submit() {
  std::vector<RootRef> owners;
  Graph done = finish(owners);
  send(std::move(done), std::move(submitted), owners);
}

void Recorder::flush(bool implicit) {
  Lock lock;
  check_failed();
  if (impl_->graph.nodes.empty() && impl_->inputs.empty() && !impl_->annotated) return;
  if (implicit) ++impl_->implicit_syncs;
  try {
    try {
      impl_->submit();
    } catch (const ShardingError&) {
      impl_->compute_unsharded();
      throw;
    }
  } catch (...) {
    impl_->roll_back(std::current_exception());
    throw;
  }
  const bool more = impl_->annotated;
  impl_->reset();
  if (more) {  // data of another mesh
    impl_->annotated = true;
    flush(implicit);
  }
}

void Recorder::cut_if_long() {
  if (impl_->graph.nodes.size() > kMaxNodes) flush(true);
}

void Recorder::check_failed() {
  if (!step_failed.load(std::memory_order_relaxed)) return;
  Lock lock;
  if (!step_failed.exchange(false)) return;
  {
    NoGil no_gil;
    engine().wait();
  }
  step_failed = false;
  auto error = std::make_exception_ptr(std::runtime_error("a step that this tensor depends on failed"));
  try {
    engine().rethrow();
  } catch (...) {
    error = std::current_exception();
  }
  impl_->roll_back(error);
  std::rethrow_exception(error);
}

at::Tensor Recorder::peek(const at::Tensor& tensor) {
  LazyTensor* lazy_tensor = as_lazy(tensor);
  internal_check(lazy_tensor, "materialise of a tensor that is not ours");
  DataRef data;
  at::Tensor held = tensor;
  {
    Lock lock;
    require_values(*lazy_tensor);
    if (lazy_tensor->chain) held = make_tensor(lazy(read(*lazy_tensor)), share(meta_of(tensor)));
    Root& root = as_lazy(held)->root();
    if (!root.current.data || !(impl_->graph.nodes.empty() || planning_only())) flush(true);
    data = root.current.data;
    internal_check(data != nullptr, "a flush left a live tensor without data");
  }
  KernelGuard kernels_only;
  const Shards* shards = nullptr;
  try {
    NoGil no_gil;
    shards = &data->wait();
  } catch (...) {
    step_failed = true;  // also where no kernel ran, as when an input had failed before
    check_failed();
    throw;
  }
  return assembled(*data, *shards);
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

PlanRef Recorder::plan_pending() {
  Lock lock;
  check_failed();
  std::vector<RootRef> owners;
  Graph graph = impl_->finish(owners);
  if (graph.outputs.empty()) return nullptr;
  NoGil no_gil;
  return engine().plan(graph);
}

Engine& engine() {
  static auto* instance = [] {
    static auto* comm = make_local_comm(aten_backend()).release();
    auto* made = new Engine(aten_backend(), *comm);  // outlives every tensor; Python waits for it at exit
    made->set_translator(note_and_translate);
    return made;
  }();
  return *instance;
}

}  // namespace spmdx::bridge
