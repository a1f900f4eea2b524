// SPDX-License-Identifier: Apache-2.0
// Shardy: meshes and shardings as attributes of XLA's partitioner.
// Source: Shardy, the sdy dialect.
#pragma once
#include <string>

#include "sharding/sharding.h"

namespace spmdx::emit {

// The op that names a mesh: `sdy.mesh @mesh = <["data"=4, "model"=2]>`. Partitions are numbered by positions in it.
std::string sdy_mesh(const Mesh& mesh);
// Whether Shardy has such a sharding; `whole_shards`: whose shards are of one size, as those of what comes in or goes
// out have to be.
bool sdy_has(const TensorType& type, const ShardingRef& sharding, bool whole_shards);
// It, on that mesh: `#sdy.sharding<@mesh, [{"data"}, {}]>`. Dims that nothing cuts stay whole. Throws ShardingError,
// says why, where there is none.
std::string sdy_sharding(const TensorType& type, const ShardingRef& sharding, bool whole_shards);

}  // namespace spmdx::emit
