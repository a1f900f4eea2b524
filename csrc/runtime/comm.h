// SPDX-License-Identifier: Apache-2.0
// Comm: collectives over the shards of a value. The in-process one is a function over buffers.
#pragma once
#include <memory>

#include "runtime/backend.h"
#include "sharding/topology.h"

namespace spmdx {

class Comm {
 public:
  virtual ~Comm() = default;
  // Turns the shards of a value laid out as `from` into those of `to`: one move of the planner, on one mesh or, for
  // send_recv, from one mesh to another.
  virtual Shards run(Collective kind, const TensorType& type, const Shards& shards, ShardingRef from,
                     ShardingRef to) = 0;
};

// Every device of the mesh lives in this process. Copies only what `to` needs; shares buffers where a shard is the
// same before and after. Reductions run in order of the coordinates: deterministic.
std::unique_ptr<Comm> make_local_comm(Backend& backend);

}  // namespace spmdx
