// SPDX-License-Identifier: Apache-2.0
// Fuse adds: rows that are added to zeros, whose sum is then added to a value, are added to that value at once: its
// memory may be written, and nothing of its size is made.
#include "graph/rewrite.h"
#include "passes/passes.h"
#include "rules/rows/windows.h"

namespace spmdx {
namespace {

// How many operands and outputs of a graph each value is.
std::vector<uint32_t> count_uses(const Graph& graph) {
  std::vector<uint32_t> uses(graph.values.size(), 0);
  for (const Node& node : graph.nodes)
    for (const ValueId value : node.inputs) ++uses[value];
  for (const Output& output : graph.outputs) ++uses[output.value];
  return uses;
}

const Node* producer(const Graph& graph, ValueId value) {
  const NodeId made = graph.values[value].producer;
  return made == kNone ? nullptr : &graph.nodes[made];
}

bool adds_to_zeros(const Graph& graph, const Node* window) {
  if (!window || !rules::adds_in_window(*window->call)) return false;
  const Node* zeros = producer(graph, window->inputs[0]);
  return zeros && rules::makes_zeros(*zeros->call);
}

// An expansion made both of one op. A program's own sum with zeros makes 0 of -0, which a fused one leaves.
bool are_of_one_op(const Node& a, const Node& b) { return a.source == b.source; }

// Sums that are still partial stay apart: the value that they are added to counts once.
bool lie_alike(const Value& a, const Value& b) {
  return a.type == b.type && a.sharding == b.sharding && !(a.sharding && a.sharding->partial);
}

}  // namespace

void fuse_adds(Graph& graph) {
  const std::vector<uint32_t> uses = count_uses(graph);
  bool fused = false;
  for (Node& node : graph.nodes) {
    if (!rules::is_sum(*node.call)) continue;
    const ValueId to = node.inputs[0], added = node.inputs[1];
    const Node* window = producer(graph, added);
    if (uses[added] != 1 || !adds_to_zeros(graph, window) || !are_of_one_op(node, *window)) continue;
    if (!lie_alike(graph.values[to], graph.values[added]) || !lie_alike(graph.values[to], graph.values[node.output]))
      continue;
    node.inputs = window->inputs;
    node.inputs[0] = to;
    node.call = window->call;
    node.param = window->param;
    node.starts_of = window->starts_of;
    fused = true;
  }
  if (fused) drop_dead(graph);
}

}  // namespace spmdx
