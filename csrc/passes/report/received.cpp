// SPDX-License-Identifier: Apache-2.0
// Received: sums by coordinate of the stage axis.
#include "passes/report/received.h"

#include <algorithm>
#include <vector>

#include "graph/places.h"

namespace spmdx {

int64_t most_received(const Graph& graph) {
  const int axis = stage_axis(graph);
  const int64_t ranks = axis < 0 ? 1 : graph.mesh->axes()[static_cast<size_t>(axis)].size;
  std::vector<int64_t> by_rank(static_cast<size_t>(ranks), 0);
  int64_t all = 0;
  for (const Node& node : graph.nodes) {
    const Place place = place_of(graph, node);
    (place.whole() ? all : by_rank[static_cast<size_t>(place.stage % ranks)]) += node.bytes;
  }
  return all + *std::ranges::max_element(by_rank);
}

}  // namespace spmdx
