// SPDX-License-Identifier: Apache-2.0
// The search of the reshard planner: A* over the states of a space, within bounds of time and memory.
#pragma once
#include <optional>
#include <vector>

#include "sharding/reshard/space.h"

namespace spmdx {

struct ReshardLimits {
  int64_t cost_ns = INT64_MAX;  // of the whole chain
  int64_t bytes = INT64_MAX;    // that a device holds between two moves
};

struct ReshardChain {
  std::vector<ReshardStep> steps;
  int64_t cost_ns = 0;
};

// The time of one step over the links that its sub-axes need.
int64_t cost_ns(const ReshardStep& step, const Mesh& mesh, const Topology& topology,
                const std::vector<uint8_t>& levels);

// The cheapest chain of moves within the limits, the shortest among equals, the first generated among those. Empty
// where there is none or the search grew too large.
std::optional<ReshardChain> search(const ReshardSpace& space, const Topology& topology,
                                   const std::vector<uint8_t>& levels, ReshardLimits limits);

}  // namespace spmdx
