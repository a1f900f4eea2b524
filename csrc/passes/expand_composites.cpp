// SPDX-License-Identifier: Apache-2.0
// Expand: composites that are best cut inside (softmax along its dim, attention along its keys) become the ops that
// they are made of, whose strategies are then chosen one by one.
#include <algorithm>

#include "graph/rewrite.h"
#include "passes/passes.h"
#include "passes/rewrites/expand.h"
#include "passes/settings/limits.h"
#include "passes/strategy/preference.h"

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

}  // namespace

void expand_composites(Graph& graph, const CompileOptions& options) {
  for (int round = 0; graph.mesh && round < kLimits.expansions; ++round) {
    const std::vector<bool> nodes = best_cut_inside(graph, options.topology);
    if (std::find(nodes.begin(), nodes.end(), true) == nodes.end()) return;
    expand(graph, nodes);
    drop_dead(graph);  // what an expansion makes for results that nobody reads
    propagate(graph, options);
  }
}

}  // namespace spmdx
