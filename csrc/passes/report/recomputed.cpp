// SPDX-License-Identifier: Apache-2.0
#include "passes/report/recomputed.h"

#include <algorithm>
#include <map>
#include <utility>

#include "passes/report/timeline.h"
#include "passes/strategy/clock.h"
#include "passes/strategy/strategy.h"
#include "rules/lookup.h"

namespace spmdx {
namespace {

int64_t flops_of(const Graph& graph, const Node& node) {
  if (is_collective(node)) return 0;
  const OpRuleRef rule = rule_for(node.call);
  const OpContext op{graph.mesh, node.call.get(), rule.get(), true};
  return static_cast<int64_t>(local_flops(op, graph.mesh ? strategy_of(op, graph, node) : Strategy{}));
}

}  // namespace

std::vector<Recomputed> recomputed(const Graph& graph, const Topology& topology) {
  std::map<std::pair<std::string, SourceId>, Recomputed> rows;
  for (const Node& node : graph.nodes) {
    if (!node.recorded.by_plan) continue;
    const int64_t flops = flops_of(graph, node), ns = clock_ns(graph, node, topology);
    if (flops == 0 && ns == 0) continue;
    Recomputed& row = rows[{label(node), node.source}];
    row.op = label(node);
    row.source = node.source;
    ++row.count;
    row.flops += flops;
    row.ns += ns;
  }
  std::vector<Recomputed> all;
  for (auto& [key, row] : rows) all.push_back(std::move(row));
  std::ranges::stable_sort(all, std::greater(), &Recomputed::ns);
  return all;
}

}  // namespace spmdx
