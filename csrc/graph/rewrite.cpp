// SPDX-License-Identifier: Apache-2.0
// Rewrite: copies inputs, nodes and outputs over mapped values, and drops nodes that no output needs.
#include "graph/rewrite.h"

#include <algorithm>

#include "base/error.h"

namespace spmdx {

Rewrite::Rewrite(const Graph& from) : from_(from), map_(from.values.size(), kNone) {
  to_.mesh = from.mesh;
  to_.schedule = from.schedule;
  to_.kinds = from.kinds;
  to_.left_out = from.left_out;
  to_.num_params = from.num_params;
  to_.merged_starts = from.merged_starts;
  to_.values.reserve(from.values.size());
  to_.nodes.reserve(from.nodes.size());
  to_.inputs.reserve(from.inputs.size());
  for (const Input& input : from.inputs) {
    const ValueId value = to_.add_input(from.values[input.value].type, input.name);
    to_.inputs.back() = input;
    to_.inputs.back().value = value;
    to_.values[value].sharding = from.values[input.value].sharding;
    to_.values[value].why = from.values[input.value].why;
    map_[input.value] = value;
  }
}

std::vector<ValueId> Rewrite::operands(const Node& node) const {
  std::vector<ValueId> operands;
  operands.reserve(node.inputs.size());
  for (const ValueId value : node.inputs) {
    if (map_[value] == kNone) throw InternalError("a rewritten node reads a value that is gone: " + node.call->op);
    operands.push_back(map_[value]);
  }
  return operands;
}

Node Rewrite::mapped(const Node& node) const {
  Node copy = node;
  copy.inputs = operands(node);
  return copy;
}

void Rewrite::keep(const Node& node, std::vector<ValueId> operands) {
  const auto output = static_cast<ValueId>(to_.values.size());
  internal_check(node.call->inputs.size() == operands.size(), "a node is kept with another number of operands");
  for (const ValueId value : operands)
    if (value >= output) throw InternalError(node.call->op + " uses a value that is not in the graph");
  to_.num_params = std::max(to_.num_params, node.call->num_params ? node.param + node.call->num_params : 0);
  for (ValueId i = 0; i < node.call->outputs.size(); ++i) {
    map_[node.output + i] = output + i;
    to_.values.push_back(from_.values[node.output + i]);
    to_.values.back().producer = static_cast<NodeId>(to_.nodes.size());
  }
  to_.nodes.push_back({.call = node.call,
                       .inputs = std::move(operands),
                       .output = output,
                       .param = node.param,
                       .source = node.source,
                       .recorded = node.recorded,
                       .starts_of = node.starts_of,
                       .sub_axes = node.sub_axes,
                       .bytes = node.bytes,
                       .native = node.native,
                       .cause = node.cause});
}

Graph Rewrite::finish() {
  std::vector<ValueId> outputs;
  for (const Output& output : from_.outputs) outputs.push_back(map_[output.value]);
  return finish(outputs);
}

Graph Rewrite::finish(const std::vector<ValueId>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    internal_check(outputs[i] != kNone, "an output of the graph was rewritten away");
    to_.outputs.push_back(from_.outputs[i]);
    to_.outputs.back().value = outputs[i];
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
  if (std::ranges::find(needed, false) == needed.end()) return;
  std::vector<NodeId> order;
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (needed[id]) order.push_back(id);
  reorder(graph, order);
}

void reorder(Graph& graph, const std::vector<NodeId>& order) {
  std::vector<ValueId> now(graph.values.size(), kNone);
  std::vector<Value> values;
  std::vector<Node> nodes;
  values.reserve(graph.values.size());
  nodes.reserve(order.size());
  const auto take = [&](ValueId value) {
    now[value] = static_cast<ValueId>(values.size());
    values.push_back(std::move(graph.values[value]));
  };
  for (Input& input : graph.inputs) {
    take(input.value);
    input.value = now[input.value];
  }
  for (const NodeId id : order) {
    internal_check(graph.nodes[id].call != nullptr, "a node is listed twice");
    Node& node = nodes.emplace_back(std::move(graph.nodes[id]));
    for (ValueId& value : node.inputs) {
      value = now[value];
      internal_check(value != kNone, "a node comes before what it reads");
    }
    const auto output = static_cast<ValueId>(values.size());
    for (ValueId r = 0; r < node.call->outputs.size(); ++r) {
      take(node.output + r);
      values.back().producer = static_cast<NodeId>(nodes.size() - 1);
    }
    node.output = output;
  }
  graph.nodes = std::move(nodes);
  graph.values = std::move(values);
  for (Output& output : graph.outputs) {
    output.value = now[output.value];
    internal_check(output.value != kNone, "an output of the graph was dropped");
  }
  for (Constraint& constraint : graph.constraints) constraint.value = now[constraint.value];
  std::erase_if(graph.constraints, [](const Constraint& constraint) { return constraint.value == kNone; });
}

}  // namespace spmdx
