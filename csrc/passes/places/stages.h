// SPDX-License-Identifier: Apache-2.0
// Stages: where every node of a partitioned graph runs.
#pragma once
#include <map>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

constexpr int32_t kAllStages = -1;  // on the whole mesh: every device has it, and no stage waits for it

struct Stages {
  int axis = -1;                 // of the mesh, along which the stages lie; -1: the graph has no places
  std::vector<int32_t> of_node;  // stage, or kAllStages
  std::vector<int32_t> of_value;
  // By node, as recorded; of nodes that passes have added, the latest of those that their operands come from.
  std::vector<Phase> phase;
  std::vector<bool> forward;  // by node: of a forward pass, or what computes one anew
  // By value: a gradient, or computed from one, up to what the optimizer makes of it. What a backward pass makes of a
  // stage's values alone is none, nor is what a forward pass makes of parameters that were updated before it.
  std::vector<bool> after_backward;
};

// Forward, a node runs on the last of the stages that its operands come from. Backward, it runs where the op did whose
// backward pass it is, on no later stage than the gradients come from. What costs less to send after an op than before
// it is computed where it is read. REQUIRES: partitioned.
// `moved` has nodes of forward passes that run on a later stage than that.
Stages stages_of(const Graph& graph, const std::map<NodeId, int32_t>& moved = {});

}  // namespace spmdx
