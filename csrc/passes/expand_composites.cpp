// SPDX-License-Identifier: Apache-2.0
// Expand: composites that are best cut inside (softmax along its dim, attention along its keys) become the ops that
// they are made of, whose strategies are then chosen one by one.
#include <algorithm>

#include "graph/rewrite.h"
#include "passes/passes.h"
#include "passes/rewrites/expand.h"
#include "passes/settings/limits.h"
#include "passes/strategy/preference.h"
#include "rules/lookup.h"

namespace spmdx {
namespace {

// What propagation has found. REQUIRES: propagated.
Known known_of(const Graph& graph) {
  const size_t n = graph.values.size();
  Known known{{}, std::vector<bool>(n, false), std::vector<bool>(n, false)};
  for (const Value& value : graph.values) known.shardings.push_back(value.sharding);
  for (const Input& input : graph.inputs)
    if (input.annotation) known.fixed[input.value] = true;
  for (const Constraint& constraint : graph.constraints) known.fixed[constraint.value] = true;
  for (const Output& output : graph.outputs)
    if (output.annotation) known.fixed[output.value] = true;
  return known;
}

std::vector<bool> best_cut_inside(const Graph& graph, const Topology& topology) {
  const Known known = known_of(graph);
  std::vector<bool> found(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const OpRuleRef rule = rule_for(node.call);
    if (!rule->expand) continue;
    const OpContext op{graph.mesh, node.call.get(), rule.get(), true};
    if (const auto best = preferred(node, op, known, topology)) found[i] = cuts_composite(op, *best);
  }
  return found;
}

// As a program of other sizes was expanded. A trail may come from a file.
std::vector<bool> expanded_before(const Graph& graph, std::span<const uint32_t> words) {
  std::vector<bool> nodes(graph.nodes.size(), false);
  for (const uint32_t node : words)
    if (node < nodes.size() && rule_for(graph.nodes[node].call)->expand) nodes[node] = true;
  return nodes;
}

std::vector<bool> nodes_to_expand(const Graph& graph, const CompileOptions& options, Walk& walk) {
  if (const auto words = walk.next()) return expanded_before(graph, *words);
  std::vector<bool> nodes = best_cut_inside(graph, options.topology);
  if (std::vector<uint32_t>* words = walk.begin())
    for (size_t node = 0; node < nodes.size(); ++node)
      if (nodes[node]) words->push_back(static_cast<uint32_t>(node));
  return nodes;
}

}  // namespace

void expand_composites(Graph& graph, const CompileOptions& options, Walk& walk) {
  for (int round = 0; graph.mesh && round < kLimits.expansions; ++round) {
    const std::vector<bool> nodes = nodes_to_expand(graph, options, walk);
    if (std::find(nodes.begin(), nodes.end(), true) == nodes.end()) return;
    expand(graph, nodes);
    drop_dead(graph);  // what an expansion makes for results that nobody reads
    propagate(graph, options, walk);
  }
}

}  // namespace spmdx
