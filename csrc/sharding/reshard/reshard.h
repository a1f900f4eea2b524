// SPDX-License-Identifier: Apache-2.0
// The reshard planner: the cheapest chain of moves that turns one sharding of a value into another.
#pragma once
#include <vector>

#include "sharding/sharding.h"
#include "sharding/topology.h"

namespace spmdx {

// One move. The sharding before it is the previous move's `to` (or the plan's `from`).
struct Move {
  Collective kind = Collective::slice;
  SubAxisSet sub_axes = 0;  // the sub-axes the collective runs over; 0 between two meshes
  ShardingRef to = nullptr;
  int64_t bytes = 0;  // received by a device
};

struct ReshardPlan {
  std::vector<Move> moves;  // empty when from == to
  int64_t bytes = 0;
  int64_t cost_ns = 0;
  int64_t peak_bytes = 0;  // of the value, on a device, between two moves
};

// Bytes that a plan may hold beyond the larger of its two ends: saving latency is worth so little memory.
constexpr int64_t kReshardSlack = 4096;

// The cheapest chain of moves; which there are, and where each applies, is said by ReshardSpace (moves.cpp). Never
// replicates in order to slice; holds at most max(in, out) + kReshardSlack bytes between moves. Between two meshes:
// reduced on the first, then sent directly.
// Cached by (bytes per element, shape, from, to) and the topology.
// REQUIRES: same rank as `shape`.
using ReshardPlanRef = std::shared_ptr<const ReshardPlan>;
ReshardPlanRef plan_reshard(DType dtype, const Shape& shape, const ShardingRef& from, const ShardingRef& to,
                            const Topology& topology);
size_t reshard_plans_kept();

}  // namespace spmdx
