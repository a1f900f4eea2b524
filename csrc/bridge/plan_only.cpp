// SPDX-License-Identifier: Apache-2.0
// Planning without running: data that do not exist, the errors of who wants them, and the way back at the end.
#include "bridge/plan_only.h"

#include <atomic>

#include "base/error.h"
#include "bridge/recorder.h"

namespace spmdx::bridge {
namespace {

constexpr const char* kNoValues =
    "the values of a tensor are wanted, but spmdx.plan_only() planned the step that makes them and did not run it. "
    "Expected only its shape, dtype and sharding to be used. Make the tensor again outside of plan_only(), or read "
    "spmdx.explain() and spmdx.get_sharding() instead.";

// What the tensors from before the context had.
struct Before {
  std::atomic<bool> active = false;
  uint64_t newest_root = 0;
  std::unordered_map<uint64_t, Annotation> annotations;  // by serial of the root
};
Before& before() {
  static auto* instance = new Before;
  return *instance;
}

void restore_annotation(Root& root) {
  if (root.serial > before().newest_root) return;
  const auto found = before().annotations.find(root.serial);
  root.annotation = found == before().annotations.end() ? nullptr : std::make_unique<Annotation>(found->second);
}

}  // namespace

bool planning_only() { return before().active.load(std::memory_order_relaxed); }

DataRef hollow_data(const TensorType& type, ShardingRef sharding) {
  static const auto* error = new std::exception_ptr(std::make_exception_ptr(ShardingError(kNoValues)));
  return Data::hollow(type, sharding, *error);
}

at::Tensor make_hollow(const Meta& meta) { return make_tensor({0, kNone, hollow_data(type_of(meta))}, share(meta)); }

void refuse_values() {
  const std::string where = source_text(current_source());
  throw ShardingError(where.empty() ? kNoValues : where + ": " + kNoValues);
}

void require_values(const LazyTensor& tensor) {
  const DataRef& data = tensor.root().current.data;
  const bool exist = data && !data->is_hollow();
  const bool computable = !planning_only() && !(data && data->is_hollow());
  if (!computable && (!exist || tensor.chain())) refuse_values();
}

void Recorder::begin_plan_only() {
  Lock lock;
  flush(false);
  for (const auto& ref : live_roots()) {
    const Root& root = root_of(ref);
    before().newest_root = std::max(before().newest_root, root.serial);
    if (root.annotation) before().annotations.emplace(root.serial, *root.annotation);
  }
  before().active = true;
}

void Recorder::end_plan_only() {
  Lock lock;
  for (const auto& ref : live_roots()) {
    Root& root = root_of(ref);
    DataRef data = root.current.data;
    if (impl_->pending(root.current)) data = root.previous ? root.previous : hollow_data(type_of(*root.base));
    if (data && data->is_hollow() && data->fallback()) data = data->fallback();
    if (data != root.current.data) {
      root.current = {0, kNone, std::move(data)};
      ++root.generation;
    }
    root.previous = nullptr;
    restore_annotation(root);
  }
  impl_->reset();
  before().annotations.clear();
  before().newest_root = 0;
  before().active = false;
  for (const auto& ref : live_roots())
    if (root_of(ref).current.data) impl_->follow_growth(root_of(ref));
}

}  // namespace spmdx::bridge
