// SPDX-License-Identifier: Apache-2.0
#include "passes/report/recomputed.h"

#include <algorithm>
#include <map>
#include <utility>

#include "passes/report/flops.h"
#include "passes/strategy/clock.h"
#include "passes/strategy/timeline.h"

namespace spmdx {
std::vector<Recomputed> recomputed(const Graph& graph, const Topology& topology) {
  std::map<std::pair<std::string, SourceId>, Recomputed> rows;
  for (const Node& node : graph.nodes) {
    if (!node.recorded.by_plan) continue;
    const auto flops = static_cast<int64_t>(flops_on_a_device(graph, node));
    const int64_t ns = clock_ns(graph, node, topology);
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
