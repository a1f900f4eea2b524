// SPDX-License-Identifier: Apache-2.0
// List scheduling: HEFT (Topcuoglu 2002, doi:10.1109/71.993206), and PEFT's look ahead (Arabnejad 2014,
// doi:10.1109/TPDS.2013.57): a device is judged by what follows on it, too.
#include "passes/kinds/list_schedule.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "passes/kinds/clusters.h"

namespace spmdx {
namespace {

// HEFT's upward rank with means over the devices that run a task, and with the least times.
std::vector<int64_t> mean_ranks(const TaskGraph& graph) {
  const uint32_t devices = graph.devices();
  std::vector<int64_t> rank(graph.tasks());
  for (uint32_t j = graph.tasks(); j-- > 0;) {
    int64_t rest = 0, sum = 0, count = 0;
    for (const TaskArc arc : graph.readers(j)) {
      int64_t moved = 0;
      for (uint32_t from = 0; from < devices; ++from)
        for (uint32_t to = 0; to < devices; ++to) moved += graph.transfer(arc, from, to) / (devices * devices);
      rest = std::max(rest, moved + rank[arc.task]);
    }
    for (uint32_t d = 0; d < devices; ++d)
      if (graph.runs(j, d)) ++count, sum += graph.ns(j, d) / 2;
    rank[j] = rest + sum / count * 2;
  }
  return rank;
}

std::vector<int64_t> least_ranks(const TaskGraph& graph, const std::vector<int64_t>& tails) {
  std::vector<int64_t> rank(graph.tasks(), kNever);
  for (uint32_t j = 0; j < graph.tasks(); ++j)
    for (uint32_t d = 0; d < graph.devices(); ++d)
      if (graph.runs(j, d)) rank[j] = std::min(rank[j], graph.ns(j, d) + tails[j * graph.devices() + d]);
  return rank;
}

// Highest ranks first; that of a task is never below that of its readers, and indices are topological.
std::vector<uint32_t> by_rank(const std::vector<int64_t>& rank) {
  std::vector<uint32_t> order(rank.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return rank[a] > rank[b]; });
  return order;
}

// Puts one task after the other into the first gap that takes it.
class ListSchedule {
 public:
  explicit ListSchedule(const TaskGraph& graph) : graph_(graph), sequences_(graph), end_(graph.tasks()) {}

  // Nothing where memory runs out. `ahead`: what follows counts, by task and device; null: it does not.
  std::optional<TaskSequences> run(const std::vector<uint32_t>& order, const std::vector<int64_t>* ahead) {
    for (const uint32_t task : order) {
      Gap best;
      int64_t least = kNever;
      for (uint32_t d = 0; d < graph_.devices(); ++d) {
        if (!sequences_.fits(graph_, task, d)) continue;
        const Gap gap = first_gap(task, d);
        const int64_t value = gap.end + (ahead ? (*ahead)[task * graph_.devices() + d] : 0);
        if (value < least) least = value, best = gap;
      }
      if (least == kNever) return std::nullopt;
      end_[task] = best.end;
      sequences_.insert(graph_, task, best.device, best.before);
    }
    return sequences_;
  }

 private:
  struct Gap {
    uint32_t device = kNone, before = kNone;
    int64_t end = kNever;
  };
  Gap first_gap(uint32_t task, uint32_t device) const {
    int64_t ready = 0;
    for (const TaskArc arc : graph_.reads(task))
      ready = std::max(ready, end_[arc.task] + graph_.transfer(arc, sequences_.device[arc.task], device));
    const int64_t ns = graph_.ns(task, device);
    Gap gap{device, kNone, kNever};
    int64_t free_from = ready;  // behind all that come later, from the last one on
    for (uint32_t j = sequences_.last[device]; j != kNone; j = sequences_.previous[j]) {
      const int64_t behind = std::max(ready, end_[j]);
      const uint32_t next = sequences_.next[j];
      if (next == kNone || behind + ns <= end_[next] - graph_.ns(next, device))
        gap.before = next, gap.end = behind + ns;
      if (end_[j] <= ready) return gap;
      free_from = end_[j] - graph_.ns(j, device);
    }
    const uint32_t head = sequences_.first[device];
    if (head == kNone || ready + ns <= free_from) gap.before = head, gap.end = ready + ns;
    return gap;
  }

  const TaskGraph& graph_;
  TaskSequences sequences_;
  std::vector<int64_t> end_;
};

// All on one device, where it runs all of them and holds them.
std::optional<TaskSequences> all_on(const TaskGraph& graph, uint32_t device) {
  TaskSequences sequences(graph);
  for (uint32_t j = 0; j < graph.tasks(); ++j) {
    if (!sequences.fits(graph, j, device)) return std::nullopt;
    sequences.insert(graph, j, device, kNone);
  }
  return sequences;
}

}  // namespace

std::vector<int64_t> least_tails(const TaskGraph& graph) {
  const uint32_t devices = graph.devices();
  std::vector<int64_t> tail(size_t{graph.tasks()} * devices, 0);
  for (uint32_t j = graph.tasks(); j-- > 0;)
    for (uint32_t d = 0; d < devices; ++d)
      for (const TaskArc arc : graph.readers(j)) {
        int64_t least = kNever;
        for (uint32_t e = 0; e < devices; ++e)
          if (graph.runs(arc.task, e))
            least = std::min(least, graph.transfer(arc, d, e) + graph.ns(arc.task, e) + tail[arc.task * devices + e]);
        tail[j * devices + d] = std::max(tail[j * devices + d], least);
      }
  return tail;
}

std::vector<int64_t> least_heads(const TaskGraph& graph) {
  const uint32_t devices = graph.devices();
  std::vector<int64_t> head(size_t{graph.tasks()} * devices, 0);
  for (uint32_t j = 0; j < graph.tasks(); ++j)
    for (uint32_t d = 0; d < devices; ++d)
      for (const TaskArc arc : graph.reads(j)) {
        int64_t least = kNever;
        for (uint32_t e = 0; e < devices; ++e)
          if (graph.runs(arc.task, e))
            least = std::min(least, head[arc.task * devices + e] + graph.ns(arc.task, e) + graph.transfer(arc, e, d));
        head[j * devices + d] = std::max(head[j * devices + d], least);
      }
  return head;
}

std::vector<TaskSequences> list_schedules(const TaskGraph& graph, const std::vector<uint32_t>& fit) {
  std::vector<std::pair<int64_t, TaskSequences>> found;
  const auto add = [&](const std::optional<TaskSequences>& sequences) {
    TaskTimes times;
    if (sequences && times.run(graph, *sequences)) found.emplace_back(times.ns, *sequences);
  };
  const std::vector<int64_t> tails = least_tails(graph);
  for (const auto& order : {by_rank(mean_ranks(graph)), by_rank(least_ranks(graph, tails))})
    for (const auto* ahead : {static_cast<const std::vector<int64_t>*>(nullptr), &tails})
      add(ListSchedule(graph).run(order, ahead));
  for (uint32_t d = 0; d < graph.devices(); ++d) add(all_on(graph, d));
  for (const TaskSequences& clustered : clustered_schedules(graph, by_rank(least_ranks(graph, tails)))) add(clustered);
  if (found.empty()) add(TaskSequences(graph, fit, by_rank(least_ranks(graph, tails))));
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<TaskSequences> starts;
  for (auto& [ns, sequences] : found) starts.push_back(std::move(sequences));
  return starts;
}

}  // namespace spmdx
