// SPDX-License-Identifier: Apache-2.0
// Time line: nodes in program order on the lanes of kernels and wire, each as soon as its operands allow.
#include "passes/report/timeline.h"

#include <algorithm>

#include "passes/strategy/clock.h"

namespace spmdx {
std::vector<Span> time_line(const Graph& graph, const Topology& topology) {
  std::vector<Span> spans;
  std::vector<int64_t> ready(graph.values.size(), 0);
  int64_t free_at[2] = {0, 0};  // kernels, wire
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    const int64_t time = clock_ns(graph, node, topology);
    int64_t start = 0;
    for (ValueId input : node.inputs) start = std::max(start, ready[input]);
    const bool wire = is_collective(node) && time > 0;
    if (time > 0) start = std::max(start, free_at[wire]);
    if (time > 0) free_at[wire] = start + time;
    for (size_t r = 0; r < node.call->outputs.size(); ++r) ready[node.output + r] = start + time;
    if (time > 0) spans.push_back({id, wire, start, start + time});
  }
  return spans;
}

std::string label(const Node& node) {
  return is_collective(node) ? std::string(name(collective_kind(node))) : node.call->op;
}

}  // namespace spmdx
