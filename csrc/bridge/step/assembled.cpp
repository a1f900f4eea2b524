// SPDX-License-Identifier: Apache-2.0
// Puts shards together: each is a box of the whole.
#include "bridge/step/assembled.h"

#include <ATen/ops/empty.h>

#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/shard_device.h"
#include "sharding/shards.h"

namespace spmdx::bridge {

at::Tensor assembled(const Data& data, const Shards& shards) {
  const ShardingRef sharding = data.sharding();
  if (!sharding || sharding->used() == 0) return to_host(tensor_of(shards.at(0)));
  const Mesh& mesh = *sharding->mesh;
  const SubAxisSet used = sharding->used();
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

}  // namespace spmdx::bridge
