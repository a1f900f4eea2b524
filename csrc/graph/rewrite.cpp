// SPDX-License-Identifier: Apache-2.0
// Rewrite: copies inputs, nodes and outputs over mapped values, and drops nodes that no output needs.
#include "graph/rewrite.h"

#include <algorithm>

#include "base/error.h"

namespace spmdx {

Rewrite::Rewrite(const Graph& from) : from_(from), map_(from.values.size(), kNone) {
  to_.mesh = from.mesh;
  to_.schedule = from.schedule;
  to_.num_params = from.num_params;
  to_.merged_starts = from.merged_starts;
  for (const Input& input : from.inputs) {
    const ValueId value = to_.add_input(from.values[input.value].type, input.name);
    to_.inputs.back() = input;
    to_.inputs.back().value = value;
    to_.values[value].sharding = from.values[input.value].sharding;
    to_.values[value].why = from.values[input.value].why;
    map_[input.value] = value;
  }
}

Node Rewrite::mapped(const Node& node) const {
  Node copy = node;
  for (ValueId& value : copy.inputs) {
    value = map_[value];
    if (value == kNone) throw InternalError("a rewritten node reads a value that is gone: " + node.call->op);
  }
  return copy;
}

void Rewrite::keep(const Node& node, std::vector<ValueId> operands) {
  const ValueId output = to_.add_node(node.call, std::move(operands), node.source, node.param);
  Node& added = to_.nodes.back();
  added.starts_of = node.starts_of;
  added.recorded = node.recorded;
  added.sub_axes = node.sub_axes;
  added.bytes = node.bytes;
  added.cause = node.cause;
  for (size_t i = 0; i < node.call->outputs.size(); ++i) {
    const ValueId old = node.output + static_cast<ValueId>(i);
    map_[old] = output + static_cast<ValueId>(i);
    to_.values[map_[old]].sharding = from_.values[old].sharding;
    to_.values[map_[old]].why = from_.values[old].why;
    to_.values[map_[old]].hint = from_.values[old].hint;
  }
}

Graph Rewrite::finish() {
  for (Output output : from_.outputs) {
    output.value = map_[output.value];
    internal_check(output.value != kNone, "an output of the graph was rewritten away");
    to_.outputs.push_back(output);
  }
  for (Constraint constraint : from_.constraints) {
    constraint.value = map_[constraint.value];
    if (constraint.value != kNone) to_.constraints.push_back(constraint);
  }
  return std::move(to_);
}

void mark_needed(const Graph& graph, std::vector<bool>& needed) {
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool used = false;
    for (size_t r = 0; r < node.call->outputs.size(); ++r) used |= needed[node.output + r];
    if (!used) continue;
    for (ValueId value : node.inputs) needed[value] = true;
  }
}

std::vector<bool> needed_values(const Graph& graph, const std::vector<Output>& outputs) {
  std::vector<bool> needed(graph.values.size(), false);
  for (const Output& output : outputs) needed[output.value] = true;
  mark_needed(graph, needed);
  return needed;
}

std::vector<bool> needed_nodes(const Graph& graph) {
  const std::vector<bool> needed = needed_values(graph, graph.outputs);
  std::vector<bool> nodes(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (size_t k = 0; k < graph.nodes[i].call->outputs.size(); ++k)
      if (needed[graph.nodes[i].output + k]) nodes[i] = true;
  return nodes;
}

std::vector<size_t> inputs_by_use(const Graph& graph) {
  std::vector<size_t> place(graph.values.size(), SIZE_MAX), order;
  for (size_t i = 0; i < graph.inputs.size(); ++i) place[graph.inputs[i].value] = i;
  const auto add = [&](ValueId value) {
    if (place[value] != SIZE_MAX) order.push_back(place[value]);
    place[value] = SIZE_MAX;
  };
  for (const Node& node : graph.nodes) std::for_each(node.inputs.begin(), node.inputs.end(), add);
  for (const Input& input : graph.inputs) add(input.value);
  return order;
}

void drop_dead(Graph& graph) {
  const std::vector<bool> needed = needed_nodes(graph);
  Rewrite rewrite(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (needed[i]) rewrite.keep(graph.nodes[i]);
  graph = rewrite.finish();
}

}  // namespace spmdx
