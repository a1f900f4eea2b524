// SPDX-License-Identifier: Apache-2.0
// Reading back: a flush where the value is pending, a wait, and the shards put together; a view of data that is whole
// here needs no step.
#include "bridge/step/read_back.h"

#include <ATen/ops/empty_like.h>

#include "base/error.h"
#include "bridge/backend/aten_backend.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/host_memory.h"
#include "bridge/backend/shard_device.h"
#include "bridge/backend/strides.h"
#include "bridge/plans/plan_warnings.h"
#include "bridge/python/gil.h"
#include "bridge/python/warnings.h"
#include "bridge/recorder/engine.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/step/assembled.h"
#include "bridge/step/constants.h"
#include "bridge/step/fetch.h"
#include "bridge/step/flush.h"
#include "bridge/tensor/abstract.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"
#include "bridge/world/c10d_comm.h"
#include "runtime/data/check.h"

namespace spmdx::bridge {
namespace {

// Gives up the GIL. A failure that the program has not heard of is raised as check_failed does.
const Shards& wait_for(const Data& data) {
  try {
    NoGil no_gil;
    return data.wait();
  } catch (...) {
    if (!data.ready()) throw;  // the wait was broken off
    note_failure();            // also where no kernel ran, as when an input had failed before
    check_failed();
    throw;
  }
}

// The data of a view's root, if that holds its elements row by row in one buffer, among which the strides of the view
// find its own. Holds the recorder's lock.
DataRef data_of_strides(const LazyTensor& view, const at::Tensor& tensor) {
  const Root& root = view.root();
  const DataRef& data = root.current.data;
  if (!data || root.too_small || comm().processes().count > 1) return nullptr;
  if (data->sharding() && data->sharding()->used() != 0) return nullptr;
  const Meta& whole = *root.base;
  if (tensor.scalar_type() != whole.dtype || tensor.is_conj() || tensor.is_neg()) return nullptr;
  const bool by_rows = whole.strides == contiguous_strides(whole.sizes) && data->type().shape == whole.sizes;
  return by_rows ? data : nullptr;
}

// What a view shows of data that is there or on its way. Undefined: a step has to compute it.
at::Tensor seen_in_data(const LazyTensor& view, const at::Tensor& tensor) {
  DataRef data;
  {
    Recorder::Lock lock;
    if (!planning_only()) require_values(view);
    if (view.chain()) data = data_of_strides(view, tensor);
    if (data && planning_only()) data = known_elements(data);
  }
  if (!data) return {};
  KernelGuard kernels_only;
  const at::Tensor& whole = tensor_of(wait_for(*data).at(0));
  if (!whole.is_contiguous()) return {};
  return to_host(whole.as_strided(tensor.sizes(), tensor.strides(), whole.storage_offset() + tensor.storage_offset()));
}

// A copy of a tensor with holes or repeats is dense, in the order of its strides.
at::Tensor dense_layout(const at::Tensor& tensor, c10::ScalarType dtype, at::MemoryFormat format) {
  KernelGuard kernels_only;
  const at::Tensor declared = meta_tensor(meta_of(tensor));
  return at::empty_like(declared, declared.options().dtype(dtype), format);
}

at::Tensor dense_copy(const at::Tensor& whole, const at::Tensor& like) {
  at::Tensor result = fresh_on_host(like.sizes(), like.strides(), like.scalar_type());
  result.copy_(whole);
  return result;
}

// Whether `whole` is what a copy of it in the layout of `like` would be.
bool lies_as(const at::Tensor& whole, const at::Tensor& like) {
  return whole.scalar_type() == like.scalar_type() && whole.sizes() == like.sizes() &&
         whole.strides() == like.strides() && whole.storage().nbytes() == whole.nbytes() && is_plain(whole);
}

// What a tensor holds, on the host; `fresh`: in memory that nobody else has.
struct Seen {
  at::Tensor whole;
  bool fresh = false;
};

// A tensor with a root that holds what `view` shows.
at::Tensor held_apart(LazyTensor& view, const at::Tensor& tensor) {
  auto& recorder = Recorder::instance();
  return make_tensor(recorder.lazy(recorder.read(view)), share(meta_of(tensor)));
}

// What a tensor holds where steps are only planned, of which nothing is seen in data. A step is planned where one would
// run, but in a trial, which is a plan of all that is recorded.
Seen see_constant(LazyTensor& lazy_tensor, const at::Tensor& tensor, const at::Tensor& like) {
  Recorder::Lock lock;
  const DataRef data = elements_shown(lazy_tensor);
  const bool in_data = lazy_tensor.chain() ? data_of_strides(lazy_tensor, tensor) != nullptr
                                           : lazy_tensor.root().current.data != nullptr;
  if (!in_data && !plans_are_trials()) {
    const at::Tensor held = lazy_tensor.chain() ? held_apart(lazy_tensor, tensor) : tensor;
    flush(GraphEnd::read);
  }
  KernelGuard kernels_only;
  const DataRef here = held_here(data);
  return {assembled(*here, wait_for(*here), like), is_assembled(*here)};
}

// `like` is the layout to put shards together in; undefined: any.
Seen see(const at::Tensor& tensor, const at::Tensor& like) {
  LazyTensor* lazy_tensor = as_lazy(tensor);
  internal_check(lazy_tensor, "materialise of a tensor that is not ours");
  Recorder::instance().note_value_read();
  if (at::Tensor seen = seen_in_data(*lazy_tensor, tensor); seen.defined()) return {seen};
  if (planning_only()) return see_constant(*lazy_tensor, tensor, like);
  DataRef data;
  at::Tensor held = tensor;
  {
    Recorder::Lock lock;
    require_values(*lazy_tensor);
    if (lazy_tensor->chain()) held = held_apart(*lazy_tensor, tensor);
    Root& root = as_lazy(held)->root();
    if (!root.current.data) flush(GraphEnd::read);
    data = root.current.data;
    internal_check(data != nullptr, "a flush left a live tensor without data");
    data = held_here(data);
  }
  const auto& shards = wait_for(*data);
  warn_of_events();
  KernelGuard kernels_only;
  at::Tensor whole = assembled(*data, shards, like);
  if (check_modes().replicas && comm().processes().count > 1) {
    NoGil no_gil;
    compare_replicas(aten_backend().digest(buffer_of(whole)));
  }
  return {std::move(whole), is_assembled(*data)};
}

}  // namespace

at::Tensor peek(const at::Tensor& tensor) { return see(tensor, {}).whole; }

at::Tensor materialise(const at::Tensor& tensor) {
  return materialise(tensor, tensor.scalar_type(), at::MemoryFormat::Preserve);
}

at::Tensor materialise(const at::Tensor& tensor, c10::ScalarType dtype, at::MemoryFormat format) {
  const at::Tensor like = dense_layout(tensor, dtype, format);
  Seen seen = see(tensor, like);
  KernelGuard kernels_only;
  return seen.fresh && lies_as(seen.whole, like) ? std::move(seen.whole) : dense_copy(seen.whole, like);
}

at::Tensor peek_dense(const at::Tensor& tensor) {
  const at::Tensor like = dense_layout(tensor, tensor.scalar_type(), at::MemoryFormat::Preserve);
  const at::Tensor whole = see(tensor, like).whole;
  KernelGuard kernels_only;
  return lies_as(whole, like) ? whole.detach() : dense_copy(whole, like);
}

}  // namespace spmdx::bridge
