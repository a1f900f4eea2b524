// SPDX-License-Identifier: Apache-2.0
// Flush: a recorded graph goes to the engine; results come back to the host; failed steps are undone.
#include <ATen/ops/empty.h>
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
  return translate_error(error, node);
}

at::Tensor assembled(const Data& data, const Shards& shards) {
  const ShardingRef sharding = data.sharding();
  if (!sharding || sharding->used() == 0) return tensor_of(shards.at(0));
  const Mesh& mesh = *sharding->mesh;
  const AtomSet used = sharding->used();
  at::Tensor whole = at::empty(data.type().shape, at::TensorOptions().dtype(to_scalar_type(data.type().dtype)));
  for (int64_t i = 0; i < num_distinct(mesh, used); ++i) {
    if (!shards.at(i)) continue;
    at::Tensor part = whole;
    const Box box = local_box(*sharding, data.type().shape, representative(mesh, used, i));
    for (size_t d = 0; d < box.size(); ++d) part = part.narrow(static_cast<int64_t>(d), box[d].start, box[d].extent);
    part.copy_(tensor_of(shards[i]));
  }
  return whole;
}

DataRef result_data(const TensorType& type) {
  return planning_only() ? hollow_data(type) : std::make_shared<Data>(type);
}

// What the root goes back to; results of steps that were only planned are skipped.
DataRef computed_before(const Root& root) {
  const DataRef& previous = root.previous;
  return previous && previous->is_hollow() ? previous->fallback() : previous;
}

void hand_over(Graph graph, std::vector<DataRef> inputs, std::vector<Param> params,
               const std::vector<DataRef>& outputs) {
  NoGil no_gil;
  if (planning_only())
    set_shardings(*engine().plan(graph), outputs);
  else
    engine().submit(std::move(graph), std::move(inputs), std::move(params), outputs);
}

}  // namespace

bool has_failed(const Data& data) {
  if (data.is_hollow()) return !planning_only();
  if (!data.ready()) return false;
  try {
    data.wait();
    return false;
  } catch (...) {
    return true;
  }
}

// Drops the pending graph. Roots go back to what was last computed; those that never were hold the error.
void Recorder::Impl::roll_back(std::exception_ptr error) {
  for (const auto& ref : live_roots()) {
    Root& root = root_of(ref);
    const DataRef& data = root.current.data;
    const bool lost = pending(root.current) || (data && !data->is_hollow() && has_failed(*data));
    if (!lost) continue;
    DataRef good = root.current.data ? root.current.data : root.previous;
    while (good && has_failed(*good)) good = good->fallback();
    if (!good) {
      good = std::make_shared<Data>(type_of(root.base));
      good->fail(error);
    }
    root.current = {0, kNone, good};
    root.previous = nullptr;
    ++root.generation;
  }
  reset();
}

void Recorder::flush(bool implicit) {
  Lock lock;
  check_failed();
  std::vector<RootRef> owners;
  if (impl_->graph.nodes.empty() && impl_->inputs.empty() && !impl_->annotated) return;
  if (implicit) ++impl_->implicit_syncs;
  try {
    Graph graph = impl_->finish(owners);
    std::vector<DataRef> outputs;
    for (const auto& output : graph.outputs) outputs.push_back(result_data(graph.value(output.value).type));
    for (size_t i = 0; i < owners.size(); ++i) outputs[i]->set_fallback(computed_before(root_of(owners[i])));
    if (!outputs.empty()) hand_over(std::move(graph), std::move(impl_->submitted), impl_->params, outputs);
    for (size_t i = 0; i < owners.size(); ++i) {
      Root& root = root_of(owners[i]);
      root.previous = nullptr;
      root.current = {0, kNone, outputs[i]};
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
    if (lazy_tensor->chain) held = make_tensor(lazy(read(*lazy_tensor)), meta_of(tensor));
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
