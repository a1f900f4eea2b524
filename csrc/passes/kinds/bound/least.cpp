// SPDX-License-Identifier: Apache-2.0
// Least: times are refuted, by windows and energy; and by branching over the devices of clusters where that is not
// enough.
#include "passes/kinds/bound/least.h"

#include <algorithm>

#include "passes/kinds/bound/energy.h"
#include "passes/kinds/bound/weights.h"
#include "passes/kinds/exact.h"
#include "passes/kinds/list_schedule.h"
#include "passes/kinds/memory_fit.h"
#include "passes/kinds/search/assign.h"
#include "passes/kinds/windows.h"

namespace spmdx {
namespace {

constexpr size_t kMostInWindows = 400;        // tasks, whose windows are looked at in all detail
constexpr int kWeightRounds = 200;            // of weights of devices and ways, before branches
constexpr size_t kEnergyTimes = 24;           // starts and ends between which is measured
constexpr size_t kInnerEnergyTimes = 2;       // of these in branches: more branches refute more than more times
constexpr int64_t kRefuteVisits = 8'000'000;  // tasks looked at to refute one time by branching
constexpr int64_t kPrecision = 256;           // parts of the time to which the bound is sought

class Refutation {
 public:
  Refutation(const TaskGraph& graph, const TaskAncestors& ancestors, int64_t visits)
      : graph_(graph), ancestors_(ancestors), visits_(visits) {}

  // Whether it is certain that no assignment takes so long, or less.
  bool run(int64_t within_ns, bool branching) {
    TaskWindows windows(graph_, ancestors_, within_ns);
    left_ = visits_;
    if (cannot_be(windows, kEnergyTimes)) return true;
    TaskWeights weights(graph_, windows);
    if (weights.bound(kWeightRounds, within_ns) > within_ns) return true;
    left_ -= weights.visits();
    return branching && refuted_by_branches(windows);
  }

 private:
  bool cannot_be(TaskWindows& windows, size_t energy_times) {
    const int64_t seen = windows.visits();
    if (!windows.tighten()) return true;
    TaskEnergy energy(graph_, windows);
    if (!energy.holds(energy_times)) return true;
    left_ -= windows.visits() - seen + energy.visits();
    return false;
  }
  bool refuted(TaskWindows& windows) { return cannot_be(windows, kInnerEnergyTimes) || refuted_by_branches(windows); }

  bool refuted_by_branches(const TaskWindows& windows) {
    if (left_ < 0) return false;
    const uint32_t cluster = windows.open_cluster(2);
    if (cluster == graph_.tasks()) return refuted_both_ways(windows);
    for (uint32_t d = 0; d < graph_.devices(); ++d) {
      if (!windows.can(cluster, d)) continue;
      TaskWindows inner = windows;
      inner.fix(cluster, d);
      if (!refuted(inner)) return false;
    }
    return true;
  }

  // All devices are known: one of two tasks of a device runs first.
  bool refuted_both_ways(const TaskWindows& windows) {
    const auto [a, b] = windows.unordered();
    if (a == b) return false;
    for (const bool swapped : {false, true}) {
      TaskWindows inner = windows;
      inner.order(swapped ? b : a, swapped ? a : b);
      if (!refuted(inner)) return false;
    }
    return true;
  }

  const TaskGraph& graph_;
  const TaskAncestors& ancestors_;
  int64_t visits_, left_ = 0;
};

// Paths, where every task is on the device that is best for it and its neighbours.
int64_t longest_path(const TaskGraph& graph) {
  const std::vector<int64_t> heads = least_heads(graph), tails = least_tails(graph);
  int64_t longest = 0;
  for (uint32_t j = 0; j < graph.tasks(); ++j) {
    int64_t least = kNever;
    for (uint32_t d = 0; d < graph.devices(); ++d)
      if (graph.runs(j, d)) {
        const size_t at = size_t{j} * graph.devices() + d;
        least = std::min(least, heads[at] + graph.ns(j, d) + tails[at]);
      }
    longest = std::max(longest, least);
  }
  return longest;
}

// The largest refuted time between `low` and `high`, but one; nothing below `low` is possible.
int64_t raise_bound(Refutation& refutation, int64_t low, int64_t high, bool branching) {
  while (high - low > low / kPrecision) {
    const int64_t middle = low + (high - low) / 2;
    if (refutation.run(middle, branching))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

}  // namespace

int64_t least_makespan_ns(const std::vector<Task>& tasks, const Devices& devices) {
  if (tasks.size() <= kMostExact) return assign_tasks(tasks, devices).ns;
  const TaskGraph graph(tasks, devices);
  TaskTimes times;
  times.run(graph, list_schedules(graph, fit_memory(graph)).front());
  int64_t low = longest_path(graph);
  if (graph.tasks() > kMostInWindows) {
    const TaskWindows open(graph, {}, kNever);  // not tightened: of what each device can run
    return std::max(low, TaskWeights(graph, open).bound(kWeightRounds, times.ns));
  }
  const TaskAncestors ancestors = task_ancestors(graph);
  Refutation refutation(graph, ancestors, kRefuteVisits);
  low = raise_bound(refutation, low, times.ns, false);
  return raise_bound(refutation, low, times.ns, true);
}

}  // namespace spmdx
