// SPDX-License-Identifier: Apache-2.0
// Puts shards together and takes wholes apart: each shard is a box of the whole.
#include "bridge/step/assembled.h"

#include <algorithm>

#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/host_memory.h"
#include "bridge/backend/shard_device.h"
#include "bridge/backend/strides.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/tensor/abstract.h"
#include "bridge/tensor/tensor.h"
#include "bridge/world/c10d_comm.h"
#include "sharding/shards.h"

namespace spmdx::bridge {

namespace {

bool is_whole(const Data& data) { return !data.sharding() || data.sharding()->used() == 0; }

// Calls `put` with each shard and its part of `whole`.
template <class Put>
void for_each_part(const Data& data, const Shards& shards, const at::Tensor& whole, Put put) {
  const Sharding& sharding = *data.sharding();
  const Mesh& mesh = *sharding.mesh;
  for (int64_t i = 0; i < num_distinct(mesh, sharding.used()); ++i) {
    if (!shards.at(i)) continue;
    at::Tensor part = whole;
    const Box box = local_box(sharding, data.type().shape, representative(mesh, sharding.used(), i));
    for (size_t d = 0; d < box.size(); ++d) part = part.narrow(static_cast<int64_t>(d), box[d].start, box[d].extent);
    put(tensor_of(shards[i]), part);
  }
}

// Whether nobody else shares the memory of these shards. Small ones may lie side by side in one memory.
bool own_their_memory(const Shards& shards) {
  return std::all_of(shards.begin(), shards.end(), [&](const BufferRef& shard) {
    if (!shard || shard.use_count() != 1) return false;
    const auto sharers = std::count_if(shards.begin(), shards.end(), [&](const BufferRef& other) {
      return other && tensor_of(other).storage().is_alias_of(tensor_of(shard).storage());
    });
    return owns_memory_alone(tensor_of(shard), static_cast<size_t>(sharers));
  });
}

// Whether the root alone holds it, and so no step that is recorded, queued or can be undone.
bool is_held_once(const DataRef& data) {
  if (!data || data.use_count() != 1 || data->is_abstract() || data->digest()) return false;
  if (!data->ready() || data->lost() || (data->sharding() && data->sharding()->partial)) return false;
  return own_their_memory(data->wait());
}

// Whether the elements of `host` are those that a root of this layout is to hold.
bool is_like(const at::Tensor& host, const Meta& whole) {
  return host.is_cpu() && host.layout() == at::kStrided && !host.unsafeGetTensorImpl()->is_python_dispatch() &&
         host.scalar_type() == whole.dtype && host.sizes() == c10::IntArrayRef(whole.sizes);
}

}  // namespace

at::Tensor assembled(const Data& data, const Shards& shards, const at::Tensor& like) {
  if (is_whole(data)) return to_host(tensor_of(shards.at(0)));
  const Shape& shape = data.type().shape;
  const bool as_asked = like.defined() && like.sizes() == c10::IntArrayRef(shape);
  at::Tensor whole = as_asked ? fresh_on_host(shape, like.strides(), like.scalar_type())
                              : fresh_on_host(shape, contiguous_strides(shape), to_scalar_type(data.type().dtype));
  for_each_part(data, shards, whole, [](const at::Tensor& shard, const at::Tensor& part) { part.copy_(shard); });
  return whole;
}

bool is_assembled(const Data& data) { return !is_whole(data) || !shard_device().is_cpu(); }

bool overwrite(const at::Tensor& target, const at::Tensor& host) {
  const LazyTensor& lazy = *as_lazy(target);
  Root& root = lazy.root();
  if (planning_only() || comm().processes().count > 1 || lazy.chain() || root.too_small) return false;
  RecorderState& state = Recorder::instance().state();
  if (!is_like(host, *root.base) || !state.at_start_of_step()) return false;
  state.rebound.clear();  // as no step may still fail; notes hold data
  if (!is_held_once(root.current.data) || root.current.data->type().shape != root.base->sizes) return false;
  const Data& data = *root.current.data;
  KernelGuard kernels_only;
  const Shards& shards = data.wait();
  if (is_whole(data))
    tensor_of(shards.at(0)).copy_(host);
  else
    for_each_part(data, shards, host, [](const at::Tensor& shard, const at::Tensor& part) { shard.copy_(part); });
  if (state.capture) state.capture->refuse("a tensor takes over what a tensor of the host holds");
  ++root.writes;
  return true;
}

}  // namespace spmdx::bridge
