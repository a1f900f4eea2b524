// SPDX-License-Identifier: Apache-2.0
// Time line: nodes in program order on the lanes of kernels and wire, each as soon as its operands allow.
#include "passes/report/timeline.h"

#include <algorithm>

#include "passes/strategy/strategy.h"
#include "rules/lookup.h"

namespace spmdx {
namespace {

int64_t duration(const Graph& graph, const Node& node, const Topology& topology) {
  if (is_collective(node)) {
    if (node.sub_axes == 0 && node.bytes > 0)  // from another mesh: one message over the slowest wires
      return topology.cost_ns(collective_kind(node), node.bytes, 2, topology.levels.size() - 1);
    const size_t level = level_of(sub_axis_levels(graph.mesh, topology), node.sub_axes);
    return topology.cost_ns(collective_kind(node), node.bytes, graph.mesh->group_size(node.sub_axes), level);
  }
  static const MeshRef kOne = Mesh::make({0}, {1});
  const OpRuleRef rule = rule_for(node.call);
  const OpContext op{graph.mesh ? graph.mesh : kOne, node.call.get(), rule.get(), false};
  return time_of(op, strategy_of(op, graph, node), topology).clock_ns;
}

}  // namespace

std::vector<Span> time_line(const Graph& graph, const Topology& topology) {
  std::vector<Span> spans;
  std::vector<int64_t> ready(graph.values.size(), 0);
  int64_t free_at[2] = {0, 0};  // kernels, wire
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    const int64_t time = duration(graph, node, topology);
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
