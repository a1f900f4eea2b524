// SPDX-License-Identifier: Apache-2.0
// Flops of a planned program, read off the shardings of its values.
#include "passes/report/flops.h"

#include "passes/strategy/strategy.h"

namespace spmdx {
Flops count_flops(const Graph& graph) {
  double device = 0, whole = 0;
  for (const Node& node : graph.nodes) {
    if (is_collective(node)) continue;
    const OpRuleRef rule = rule_for(node.call);
    const OpContext op{graph.mesh, node.call.get(), rule.get(), true};
    const double all = local_flops(op, Strategy{});
    whole += all;
    device += graph.mesh ? local_flops(op, strategy_of(op, graph, node)) : all;
  }
  return {static_cast<int64_t>(device), static_cast<int64_t>(whole)};
}

}  // namespace spmdx
