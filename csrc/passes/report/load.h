// SPDX-License-Identifier: Apache-2.0
// Load: what each device of a planned program does in a step by the cost model, and what it waits for.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// The four times make up the step.
struct DeviceLoad {
  int64_t device = 0;  // its id
  int64_t computing_ns = 0;
  int64_t behind_ns = 0;   // while devices that hold more of uneven parts compute on
  int64_t exposed_ns = 0;  // while links work that it needs, and it has nothing to compute
  int64_t idle_ns = 0;     // the rest: of a pipeline, its bubble
};

// By position in the mesh. REQUIRES: a compiled graph.
std::vector<DeviceLoad> loads(const Graph& graph, const Topology& topology);

}  // namespace spmdx
