// SPDX-License-Identifier: Apache-2.0
// Homes: one sweep against the program.
#include "passes/places/homes.h"

#include "passes/places/movement.h"
#include "rules/rows/windows.h"

namespace spmdx {

std::vector<int32_t> homes(const Graph& graph, std::vector<int32_t> kept, const std::vector<bool>& after_backward,
                           const std::vector<bool>& updates) {
  for (NodeId id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;) {
    const Node& node = graph.nodes[id];
    if (node.call->outputs.empty() || !after_backward[node.output]) continue;
    const int32_t home = kept[node.output];
    const bool is_moved = is_collective(node) || movement_of(graph, node.output) != nullptr;
    if (home < 0 || (!updates[id] && !is_moved && !rules::is_sum(*node.call))) continue;
    for (const ValueId value : node.inputs) {
      const bool is_alike = graph.values[value].type.shape == graph.values[node.output].type.shape;
      if (after_backward[value] && (is_moved || is_alike)) kept[value] = home;
    }
  }
  return kept;
}

}  // namespace spmdx
