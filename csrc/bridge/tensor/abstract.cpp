// SPDX-License-Identifier: Apache-2.0
// Tensors that were planned and not computed, and the error that is thrown where their values are wanted.
#include "bridge/tensor/abstract.h"

#include <atomic>

#include "base/error.h"
#include "bridge/python/source.h"

namespace spmdx::bridge {
namespace {

constexpr const char* kNoValues =
    "the values of a tensor are wanted, but spmdx.plan_only() planned the step that makes them and did not run it. "
    "Expected only its shape, dtype and sharding to be used. ";
constexpr const char* kInside =
    "Say what it holds with spmdx.assume(), or make the tensor again outside of plan_only().";
constexpr const char* kAfter =
    "Make the tensor again outside of plan_only(), or read spmdx.explain() and spmdx.get_sharding() instead.";

std::atomic<bool> only_planning = false;

std::string refusal() { return std::string(kNoValues) + (planning_only() ? kInside : kAfter); }

}  // namespace

bool planning_only() { return only_planning.load(std::memory_order_relaxed); }
void set_planning_only(bool only) { only_planning = only; }

DataRef abstract_data(const TensorType& type, ShardingRef sharding) {
  static const auto* error =
      new std::exception_ptr(std::make_exception_ptr(ShardingError(std::string(kNoValues) + kAfter)));
  return Data::abstract(type, sharding, *error);
}

at::Tensor make_abstract(const Meta& meta) {
  return make_tensor({0, kNone, abstract_data(type_of(meta))}, share(meta));
}

void refuse_values() {
  const std::string where = source_text(current_source());
  throw ShardingError((where.empty() ? "" : where + ": ") + refusal());
}

void require_values(const LazyTensor& tensor) {
  const DataRef& data = tensor.root().current.data;
  const bool exist = data && !data->is_abstract();
  const bool computable = !planning_only() && !(data && data->is_abstract());
  if (!computable && (!exist || tensor.chain())) refuse_values();
}

}  // namespace spmdx::bridge
