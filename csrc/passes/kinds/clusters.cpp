// SPDX-License-Identifier: Apache-2.0
#include "passes/kinds/clusters.h"

#include <algorithm>
#include <numeric>

namespace spmdx {
namespace {

constexpr size_t kClusterings = 6;  // shares of the arcs that join clusters, from none to all
constexpr int64_t kClusters = 4;    // for each device at least, where they are not to be large
constexpr int64_t kSlow = 2;        // times the fastest transfer of all, which is latency alone

class Clusters {
 public:
  explicit Clusters(const TaskGraph& graph) : graph_(graph), parent_(graph.tasks()) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  // Nothing where the devices that run all of a cluster have no memory for it, or it is more work than that: the two
  // stay apart then.
  void join(uint32_t a, uint32_t b, int64_t most_ns = kNever) {
    a = root(a), b = root(b);
    if (a == b || (most_ns != kNever && least_work(members(a, b)) > most_ns)) return;
    for (uint32_t d = 0; a != b && d < graph_.devices(); ++d)
      if (fits(a, b, d)) parent_[std::max(a, b)] = std::min(a, b), b = a = std::min(a, b);
  }
  // Clusters with most work first, each on the device that has done soonest by its load alone.
  std::optional<std::vector<uint32_t>> devices() {
    std::vector<std::vector<uint32_t>> members(graph_.tasks());
    for (uint32_t j = 0; j < graph_.tasks(); ++j) members[root(j)].push_back(j);
    std::stable_sort(members.begin(), members.end(),
                     [&](const auto& a, const auto& b) { return least_work(a) > least_work(b); });
    std::vector<int64_t> load(graph_.devices(), 0);
    std::vector<std::vector<uint32_t>> there(graph_.devices());
    std::vector<uint32_t> device(graph_.tasks());
    for (const auto& cluster : members) {
      uint32_t best = kNone;
      for (uint32_t d = 0; d < graph_.devices(); ++d)
        if (work(cluster, d) != kNever && graph_.bytes_together(both(cluster, there[d])) <= graph_.memory(d) &&
            (best == kNone || load[d] + work(cluster, d) < load[best] + work(cluster, best)))
          best = d;
      if (best == kNone) return std::nullopt;
      load[best] += work(cluster, best);
      there[best] = both(cluster, there[best]);
      for (const uint32_t j : cluster) device[j] = best;
    }
    return device;
  }

 private:
  uint32_t root(uint32_t task) {
    while (parent_[task] != task) task = parent_[task] = parent_[parent_[task]];
    return task;
  }
  bool fits(uint32_t a, uint32_t b, uint32_t device) {
    const std::vector<uint32_t> joined = members(a, b);
    return work(joined, device) != kNever && graph_.bytes_together(joined) <= graph_.memory(device);
  }
  std::vector<uint32_t> members(uint32_t a, uint32_t b) {
    std::vector<uint32_t> found;
    for (uint32_t j = 0; j < graph_.tasks(); ++j)
      if (const uint32_t r = root(j); r == a || r == b) found.push_back(j);
    return found;
  }
  static std::vector<uint32_t> both(std::vector<uint32_t> some, const std::vector<uint32_t>& others) {
    some.insert(some.end(), others.begin(), others.end());
    return some;
  }
  int64_t work(const std::vector<uint32_t>& cluster, uint32_t device) const {
    int64_t sum = 0;
    for (const uint32_t j : cluster) {
      if (!graph_.runs(j, device)) return kNever;
      sum += graph_.ns(j, device);
    }
    return sum;
  }
  int64_t least_work(const std::vector<uint32_t>& cluster) const {
    int64_t least = kNever;
    for (uint32_t d = 0; d < graph_.devices(); ++d) least = std::min(least, work(cluster, d));
    return least;
  }

  const TaskGraph& graph_;
  std::vector<uint32_t> parent_;
};

struct SlowArc {
  int64_t ns;
  uint32_t from, to;
};

// The slowest first, by the mean over all pairs of devices.
std::vector<SlowArc> slow_arcs(const TaskGraph& graph) {
  std::vector<SlowArc> arcs;
  for (uint32_t j = 0; j < graph.tasks(); ++j)
    for (const TaskArc arc : graph.reads(j)) {
      int64_t sum = 0;
      for (uint32_t d = 0; d < graph.devices(); ++d)
        for (uint32_t e = 0; e < graph.devices(); ++e) sum += graph.transfer(arc, d, e);
      arcs.push_back({sum, arc.task, j});
    }
  std::stable_sort(arcs.begin(), arcs.end(), [](const SlowArc& a, const SlowArc& b) { return a.ns > b.ns; });
  return arcs;
}

}  // namespace

std::vector<TaskSequences> clustered_schedules(const TaskGraph& graph, const std::vector<uint32_t>& order) {
  std::vector<TaskSequences> found;
  const std::vector<SlowArc> arcs = slow_arcs(graph);
  Clusters clusters(graph);
  for (size_t share = 0, at = 0; share < kClusterings; ++share) {
    for (; at < arcs.size() * share / (kClusterings - 1); ++at) clusters.join(arcs[at].from, arcs[at].to);
    if (const auto device = clusters.devices()) found.emplace_back(graph, *device, order);
  }
  return found;
}

std::optional<std::vector<uint32_t>> clustered_devices(const TaskGraph& graph) {
  int64_t all = 0;
  for (uint32_t j = 0; j < graph.tasks(); ++j) {
    int64_t least = kNever;
    for (uint32_t d = 0; d < graph.devices(); ++d) least = std::min(least, graph.ns(j, d));
    all += least;
  }
  Clusters clusters(graph);
  const std::vector<SlowArc> arcs = slow_arcs(graph);
  for (const SlowArc& arc : arcs)
    if (arc.ns >= kSlow * arcs.back().ns) clusters.join(arc.from, arc.to, all / (kClusters * graph.devices()));
  return clusters.devices();
}

}  // namespace spmdx
