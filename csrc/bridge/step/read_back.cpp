// SPDX-License-Identifier: Apache-2.0
// Reading back: a flush where the value is pending, a wait, and the shards put together.
#include "bridge/step/read_back.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

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
#include "bridge/step/flush.h"
#include "bridge/tensor/abstract.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"
#include "bridge/world/c10d_comm.h"
#include "runtime/data/check.h"

namespace spmdx::bridge {

at::Tensor peek(const at::Tensor& tensor) {
  LazyTensor* lazy_tensor = as_lazy(tensor);
  internal_check(lazy_tensor, "materialise of a tensor that is not ours");
  DataRef data;
  at::Tensor held = tensor;
  {
    auto& recorder = Recorder::instance();
    Recorder::Lock lock;
    require_values(*lazy_tensor);
    if (lazy_tensor->chain()) held = make_tensor(recorder.lazy(recorder.read(*lazy_tensor)), share(meta_of(tensor)));
    Root& root = as_lazy(held)->root();
    if (!root.current.data || !(recorder.state().graph.nodes.empty() || planning_only())) flush(true);
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

at::Tensor materialise(const at::Tensor& tensor) {
  at::Tensor whole = peek(tensor);
  KernelGuard kernels_only;
  // A copy of a tensor with holes or repeats is dense, in the order of its strides.
  const at::Tensor like = at::empty_like(meta_tensor(meta_of(tensor)));
  at::Tensor result = at::empty_strided(like.sizes(), like.strides(), whole.options());
  result.copy_(whole);
  return result;
}

}  // namespace spmdx::bridge
