// SPDX-License-Identifier: Apache-2.0
// Flops of a planned program, read off the shardings of its values.
#include "passes/report/flops.h"

#include "passes/strategy/strategy.h"
#include "rules/lookup.h"

namespace spmdx {
double flops_on_a_device(const Graph& graph, const Node& node) {
  if (is_collective(node)) return 0;
  const OpRuleRef rule = rule_for(node.call);
  const OpContext op{graph.mesh, node.call.get(), rule.get(), true};
  return local_flops(op, graph.mesh ? strategy_of(op, graph, node) : Strategy{});
}

Flops count_flops(const Graph& graph) {
  double device = 0, whole = 0;
  for (const Node& node : graph.nodes) {
    if (is_collective(node)) continue;
    const OpRuleRef rule = rule_for(node.call);
    const OpContext op{graph.mesh, node.call.get(), rule.get(), true};
    whole += local_flops(op, Strategy{});
    device += flops_on_a_device(graph, node);
  }
  return {static_cast<int64_t>(device), static_cast<int64_t>(whole)};
}

double seconds_at_peak(const Graph& graph, const Hardware& hardware) {
  double seconds = 0;
  for (const Node& node : graph.nodes) {
    if (is_collective(node)) continue;
    const OpRuleRef rule = rule_for(node.call);
    const OpContext op{graph.mesh, node.call.get(), rule.get(), true};
    const DType dtype = rule->product ? op.type(0).dtype : DType::f32;
    seconds += local_flops(op, Strategy{}) / hardware.peak_flops_per_second(dtype);
  }
  return seconds;
}

}  // namespace spmdx
