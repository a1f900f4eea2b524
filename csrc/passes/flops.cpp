// SPDX-License-Identifier: Apache-2.0
// Flops of a planned program, read off the shardings of its values.
#include "passes/flops.h"

#include "passes/strategy.h"

namespace spmdx {
namespace {

// The cuts of the factors that the shardings of operands and results show.
Strategy shown(const OpContext& op, const Graph& graph, const Node& node) {
  Strategy strategy;
  strategy.cuts.resize(op.rule->factors.size());
  for (size_t t = 0; t < op.num_tensors(); ++t) {
    const ValueId value =
        t < node.inputs.size() ? node.inputs[t] : node.output + static_cast<ValueId>(t - node.inputs.size());
    const Strategy seen = project(op, t, graph.values[value].sharding);
    for (size_t f = 0; f < strategy.cuts.size(); ++f)
      if (seen.cuts[f].atoms.size() > strategy.cuts[f].atoms.size()) strategy.cuts[f] = seen.cuts[f];
  }
  return strategy;
}

}  // namespace

Flops count_flops(const Graph& graph) {
  double device = 0, whole = 0;
  for (const Node& node : graph.nodes) {
    if (is_collective(node)) continue;
    const OpRuleRef rule = rule_for(node.call);
    const OpContext op{graph.mesh, node.call.get(), rule.get(), true};
    const double all = local_flops(op, Strategy{});
    whole += all;
    device += graph.mesh ? local_flops(op, shown(op, graph, node)) : all;
  }
  return {static_cast<int64_t>(device), static_cast<int64_t>(whole)};
}

}  // namespace spmdx
