// SPDX-License-Identifier: Apache-2.0
// Balance: read off the shardings of a planned program's values, as flops are.
#include "passes/report/balance.h"

#include <algorithm>

#include "graph/places.h"
#include "passes/strategy/strategy.h"
#include "rules/lookup.h"

namespace spmdx {
namespace {

// The sub-axes that cut no factor of the node, and over which no operand is partial, nor do stages lie.
SubAxisSet unused(const OpContext& op, const Graph& graph, const Node& node, const Strategy& strategy) {
  SubAxisSet used = strategy.used();
  for (const ValueId operand : node.inputs) used |= graph.values[operand].sharding->partial;
  const Place place = place_of(graph, node);
  if (!place.whole()) used |= sub_axis_set(op.mesh->sub_axes_of_axis(place.axis));
  return op.mesh->all_sub_axes() & ~used;
}

// The first operand with a dim that these sub-axes could cut beside what cuts it now, as that would leave it.
void find_cut(const OpContext& op, const Strategy& now, SubAxisSet sub_axes, Repeated& repeated) {
  for (size_t f = 0; f < op.rule->factors.size(); ++f) {
    const Factor& factor = op.rule->factors[f];
    if (factor.kind != FactorKind::pass || !may_cut(op, factor)) continue;
    Strategy strategy = now;
    for (const SubAxisId sub_axis : sub_axis_list(sub_axes)) strategy.cuts[f].sub_axes.push_back(sub_axis);
    if (!is_legal(*op.mesh, strategy.cuts[f], factor.size)) continue;
    const auto placed = place(op, strategy);
    for (size_t i = 0; placed && i < op.rule->inputs.size(); ++i)
      if (has_factor(op.rule->inputs[i], static_cast<int>(f))) {
        repeated.operand = op.call->inputs[i];
        repeated.cut = placed->inputs[i];
        return;
      }
  }
}

}  // namespace

std::vector<Repeated> repeated_products(const Graph& graph) {
  std::vector<Repeated> found;
  for (const Node& node : graph.nodes) {
    if (!graph.mesh || is_collective(node)) continue;
    const OpRuleRef rule = rule_for(node.call);
    if (!rule->product) continue;
    const OpContext op{graph.mesh, node.call.get(), rule.get(), true};
    const Strategy strategy = strategy_of(op, graph, node);
    const SubAxisSet idle = unused(op, graph, node, strategy);
    const int64_t devices = graph.mesh->group_size(idle);
    if (devices == 1) continue;
    const double flops = local_flops(op, strategy);
    const auto same = std::find_if(found.begin(), found.end(), [&](const Repeated& other) {
      return other.source == node.source && other.op == node.call->op && other.devices == devices;
    });
    if (same != found.end()) {
      same->count += 1;
      same->flops += flops;
      continue;
    }
    found.push_back({node.source, node.call->op, 1, devices, flops, {}, nullptr});
    find_cut(op, strategy, idle, found.back());
  }
  std::stable_sort(found.begin(), found.end(), [](const Repeated& a, const Repeated& b) { return a.flops > b.flops; });
  return found;
}

}  // namespace spmdx
