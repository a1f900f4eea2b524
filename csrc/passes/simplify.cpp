// SPDX-License-Identifier: Apache-2.0
// Simplify: drop nodes that no output needs, merge equal data movements, move views late, give each use of a constant
// its own node.
#include <algorithm>
#include <unordered_map>

#include "graph/computation.h"
#include "graph/rewrite.h"
#include "passes/passes.h"
#include "rules/lookup.h"
#include "rules/rule/row.h"

namespace spmdx {
namespace {

// Computation may be repeated on purpose (activation checkpointing), so it is not merged. Data movement never is.
bool may_merge(const Node& node) {
  if (node.call->num_params || node.inputs.empty() || is_collective(node)) return false;
  return rule_for(node.call)->linearity == Linearity::movement;
}

// The plan will hold only where both starts are equal again.
void note_merged_starts(Graph& graph, const Node& gone, NodeId kept) {
  const NodeId other = graph.nodes[kept].starts_of;
  if (gone.starts_of != kNone && gone.starts_of != other) graph.merged_starts.emplace_back(gone.starts_of, other);
  if (gone.starts_of == kNone && other != kNone) graph.merged_starts.emplace_back(other, kNone);
}

bool is_constant(const Node& node) {
  return node.inputs.empty() && !is_collective(node) && !rule_for(node.call)->random;
}

const std::vector<int64_t>* permute_dims(const Graph& graph, ValueId value) {
  const NodeId producer = graph.values[value].producer;
  if (producer == kNone || rules::form_of(*graph.nodes[producer].call) != rules::Form::permute) return nullptr;
  return std::get_if<std::vector<int64_t>>(&graph.nodes[producer].call->args[1]);
}

bool has_joined_permutes(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return !node.inputs.empty() && permute_dims(graph, node.output) && permute_dims(graph, node.inputs[0]);
  });
}

// The permute of a permute is one permute of what the first one read, or that value itself. A backward pass reads its
// weight as the transpose of a transpose. If it read it through the forward's transpose, a gathered weight would stay
// alive since the forward.
void join_permutes(Graph& graph) {
  if (!has_joined_permutes(graph)) return;
  std::vector<bool> kept(graph.values.size(), false);  // values that the user sees
  for (const Output& output : graph.outputs) kept[output.value] = true;
  for (const Constraint& constraint : graph.constraints) kept[constraint.value] = true;
  const std::vector<bool> needed = needed_nodes(graph);
  Rewrite rewrite(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!needed[i]) continue;
    const Node& node = graph.nodes[i];
    const std::vector<int64_t>* outer = kept[node.output] ? nullptr : permute_dims(graph, node.output);
    const std::vector<int64_t>* inner = outer ? permute_dims(rewrite.to(), rewrite.at(node.inputs[0])) : nullptr;
    if (!inner) {
      rewrite.keep(node);
      continue;
    }
    const ValueId source = rewrite.to().nodes[rewrite.to().values[rewrite.at(node.inputs[0])].producer].inputs[0];
    std::vector<int64_t> dims;
    for (int64_t dim : *outer) dims.push_back((*inner)[dim]);
    if (std::is_sorted(dims.begin(), dims.end())) {
      rewrite.map(node.output, source);
      continue;
    }
    Call call = *node.call;
    call.inputs[0] = rewrite.to().values[source].type;
    call.args[1] = std::move(dims);
    rewrite.map(node.output, rewrite.to().add_node(seal(std::move(call)), {source}, node.source));
  }
  graph = rewrite.finish();
}

// Shows all elements of its operand, in other dims or another order.
bool is_whole_view(const Node& node) {
  if (node.inputs.size() != 1 || node.call->outputs.size() != 1) return false;
  return numel(node.call->inputs[0].shape) == numel(node.call->outputs[0].shape) && may_merge(node);
}

// Moves each view right before its first reader, or to the end. Sums that views need are then made late, and merge.
class LateViews {
 public:
  // `is_late`: by node.
  LateViews(const Graph& graph, const std::vector<bool>& is_late)
      : graph_(graph), rewrite_(graph), done_(graph.nodes.size(), false) {
    for (NodeId i = 0; i < graph_.nodes.size(); ++i)
      if (!is_late[i]) keep(i);
    for (NodeId i = 0; i < graph_.nodes.size(); ++i) keep(i);
  }
  Graph moved() { return rewrite_.finish(); }

 private:
  void keep(NodeId i) {
    if (done_[i]) return;
    done_[i] = true;
    for (ValueId value : graph_.nodes[i].inputs)
      if (const NodeId producer = graph_.values[value].producer; producer != kNone) keep(producer);
    rewrite_.keep(graph_.nodes[i]);
  }

  const Graph& graph_;
  Rewrite rewrite_;
  std::vector<bool> done_;
};

void move_views_late(Graph& graph) {
  std::vector<bool> constrained(graph.values.size(), false), is_late(graph.nodes.size(), false);
  for (const Constraint& constraint : graph.constraints) constrained[constraint.value] = true;
  for (NodeId i = 0; i < graph.nodes.size(); ++i)
    is_late[i] = is_whole_view(graph.nodes[i]) && !constrained[graph.nodes[i].output];
  if (std::find(is_late.begin(), is_late.end(), true) != is_late.end()) graph = LateViews(graph, is_late).moved();
}

}  // namespace

void simplify(Graph& graph) {
  join_permutes(graph);
  const std::vector<bool> needed = needed_nodes(graph);
  std::vector<bool> constrained(graph.values.size(), false);  // a user's constraint is on this very value
  for (const Constraint& constraint : graph.constraints) constrained[constraint.value] = true;
  Rewrite rewrite(graph);
  std::unordered_map<Computation, ValueId, HashOfComputation> seen;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (!needed[i]) continue;
    if (!may_merge(node) || constrained[node.output]) {
      rewrite.keep(node);
      continue;
    }
    auto [entry, fresh] = seen.try_emplace(Computation{node.call, rewrite.operands(node)}, kNone);
    if (fresh) {
      rewrite.keep(node);
      entry->second = rewrite.at(node.output);
    } else {
      note_merged_starts(rewrite.to(), node, rewrite.to().values[entry->second].producer);
      for (size_t k = 0; k < node.call->outputs.size(); ++k)
        rewrite.map(node.output + static_cast<ValueId>(k), entry->second + static_cast<ValueId>(k));
    }
  }
  graph = rewrite.finish();
  move_views_late(graph);
}

void split_constants(Graph& graph) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), is_constant)) return;
  std::vector<NodeId> constant(graph.values.size(), kNone);  // the constant node behind a value
  std::vector<bool> outlives(graph.values.size(), false), is_data(graph.values.size(), false);
  for (const Output& output : graph.outputs) outlives[output.value] = true;
  for (const Constraint& constraint : graph.constraints) {
    outlives[constraint.value] = true;
    if (!constraint.state) is_data[constraint.value] = true;  // treated as an input: all uses see its layout
  }
  Rewrite rewrite(graph);
  std::vector<bool> taken(graph.nodes.size(), false);
  for (NodeId i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    for (ValueId value : node.inputs) {
      if (constant[value] == kNone) continue;
      if (taken[constant[value]]) rewrite.keep(graph.nodes[constant[value]]);  // one more copy, for this use
      taken[constant[value]] = true;
    }
    rewrite.keep(node);
    if (is_constant(node) && node.call->outputs.size() == 1 && !is_data[node.output]) {
      constant[node.output] = i;
      taken[i] = outlives[node.output];
    }
  }
  graph = rewrite.finish();
}

}  // namespace spmdx
