// SPDX-License-Identifier: Apache-2.0
// Load: the time line says when a rank of the pipeline computes and when its links work; shards say what each device
// has of an op.
#include "passes/report/load.h"

#include <algorithm>
#include <utility>

#include "graph/places.h"
#include "passes/strategy/strategy.h"
#include "passes/strategy/timeline.h"
#include "rules/lookup.h"

namespace spmdx {
namespace {

using Interval = std::pair<int64_t, int64_t>;

// Of intervals that may overlap.
int64_t covered_ns(std::vector<Interval> intervals) {
  std::ranges::sort(intervals);
  int64_t covered = 0, end = 0;
  for (const auto& [from, to] : intervals) {
    covered += std::max<int64_t>(0, to - std::max(from, end));
    end = std::max(end, to);
  }
  return covered;
}

// What the devices of one rank of the pipeline do, as the time line has it.
struct RankTimes {
  int64_t busy_ns = 0, exposed_ns = 0;
};

RankTimes times_of(const std::vector<Span>& spans, int64_t rank) {
  std::vector<Interval> kernels, all;
  for (const Span& span : spans) {
    if (span.rank >= 0 && span.rank != rank && span.from != rank) continue;
    all.emplace_back(span.start_ns, span.end_ns);
    if (!span.wire) kernels.push_back(all.back());
  }
  const int64_t busy = covered_ns(kernels);
  return {busy, covered_ns(all) - busy};
}

// Of an op that is cut unevenly, how much less than the most a device has to do.
class Behind {
 public:
  Behind(const Graph& graph, const Topology& topology) : graph_(graph), topology_(topology) {
    by_position_.assign(static_cast<size_t>(graph.mesh->size()), 0);
  }
  void add(const Node& node) {
    const OpRuleRef rule = rule_for(node.call);
    const OpContext op{graph_.mesh, node.call.get(), rule.get(), false};
    const Strategy strategy = strategy_of(op, graph_, node);
    if (is_even(op, strategy)) return;
    const int64_t most = time_of(op, strategy, topology_).device_ns;
    const Place place = place_of(graph_, node);
    for (size_t p = 0; p < by_position_.size(); ++p)
      if (place.whole() || lies_at(*graph_.mesh, place, static_cast<int64_t>(p)))
        by_position_[p] += most - time_of(op, strategy, topology_, static_cast<int64_t>(p)).device_ns;
  }
  int64_t at(size_t position) const { return by_position_[position]; }

 private:
  bool is_even(const OpContext& op, const Strategy& strategy) const {
    for (size_t f = 0; f < strategy.cuts.size(); ++f)
      if (!strategy.cuts[f].empty() &&
          op.rule->factors[f].size % graph_.mesh->group_size(sub_axis_set(strategy.cuts[f].sub_axes)) != 0)
        return false;
    return true;
  }

  const Graph& graph_;
  const Topology& topology_;
  std::vector<int64_t> by_position_;
};

}  // namespace

std::vector<DeviceLoad> loads(const Graph& graph, const Topology& topology) {
  const std::vector<Span> spans = time_line(graph, topology);
  const int64_t step = last_end_ns(spans);
  const auto load = [&](int64_t device, const RankTimes& times, int64_t behind) {
    return DeviceLoad{device, times.busy_ns - behind, behind, times.exposed_ns,
                      step - times.busy_ns - times.exposed_ns};
  };
  if (!graph.mesh) return {load(0, times_of(spans, -1), 0)};
  Behind behind(graph, topology);
  for (const Node& node : graph.nodes)
    if (!is_collective(node)) behind.add(node);
  const Mesh& mesh = *graph.mesh;
  const int axis = axis_of_places(graph);
  std::vector<DeviceLoad> all(static_cast<size_t>(mesh.size()));
  for (int64_t rank = 0; rank < (axis < 0 ? 1 : mesh.axes()[axis].size); ++rank) {
    const RankTimes times = times_of(spans, rank);
    for (size_t p = 0; p < all.size(); ++p)
      if (axis < 0 || lies_at(mesh, {axis, rank}, static_cast<int64_t>(p)))
        all[p] = load(mesh.device_ids()[p], times, behind.at(p));
  }
  return all;
}

}  // namespace spmdx
