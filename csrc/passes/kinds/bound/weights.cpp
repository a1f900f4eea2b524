// SPDX-License-Identifier: Apache-2.0
#include "passes/kinds/bound/weights.h"

#include <algorithm>

namespace spmdx {

TaskWeights::TaskWeights(const TaskGraph& graph, const TaskWindows& windows)
    : graph_(graph),
      windows_(windows),
      of_device_(graph.devices(), 0),
      of_task_(graph.tasks(), 0),
      of_arc_(graph.arcs(), 0),
      into_(graph.tasks(), 0),
      cost_(size_t{graph.tasks()} * graph.devices(), 0),
      answer_(graph.tasks()),
      load_(graph.devices(), 0),
      ns_(graph.tasks(), 0),
      transfer_(graph.arcs(), 0),
      way_(graph.tasks(), 0) {}

int64_t TaskWeights::bound(int rounds, int64_t enough) {
  int64_t best = 0;
  for (int round = 0; round < rounds && best <= enough; ++round) {
    const int64_t cost = best_answer();
    if (round > 0) best = std::max(best, (cost + round - 1) / round);
    count_answer();
    weigh();
    visits_ += (graph_.devices() + 1) * static_cast<int64_t>(graph_.tasks() + graph_.devices() * graph_.arcs() / 2);
  }
  return best;
}

// Readers hand what they and all behind them cost to those that they read, by the weights of the arcs. So what those
// that nobody hands on cost is at most what all cost; rounding down keeps that.
int64_t TaskWeights::best_answer() {
  const uint32_t devices = graph_.devices();
  int64_t sum = 0;
  for (uint32_t j = graph_.tasks(); j-- > 0;) {
    int64_t least = kNever;
    for (uint32_t d = 0; d < devices; ++d) {
      if (!windows_.can(j, d)) continue;
      int64_t cost = (of_device_[d] + of_task_[j]) * graph_.ns(j, d);
      for (const TaskArc arc : graph_.readers(j)) {
        if (of_arc_[arc.table] == 0) continue;
        int64_t handed = kNever;
        const int64_t weight = of_arc_[arc.table], all = into_[arc.task];
        for (uint32_t e = 0; e < devices; ++e)
          if (windows_.can(arc.task, e))
            handed =
                std::min(handed, cost_[arc.task * devices + e] / all * weight + weight * graph_.transfer(arc, d, e));
        cost += handed;
      }
      cost_[j * devices + d] = cost;
      if (cost < least) least = cost, answer_[j] = d;
    }
    if (into_[j] == 0) sum += least;
  }
  return sum;
}

// What is handed on goes where that is best for the heaviest of those that it reads.
void TaskWeights::count_answer() {
  const uint32_t devices = graph_.devices();
  for (uint32_t j = 0; j < graph_.tasks(); ++j) {
    const TaskArc* heaviest = nullptr;
    for (const TaskArc& arc : graph_.reads(j))
      if (of_arc_[arc.table] > (heaviest ? of_arc_[heaviest->table] : 0)) heaviest = &arc;
    if (heaviest) {
      int64_t least = kNever;
      for (uint32_t d = 0; d < devices; ++d) {
        if (!windows_.can(j, d)) continue;
        const int64_t cost = cost_[j * devices + d] / into_[j] * of_arc_[heaviest->table] +
                             of_arc_[heaviest->table] * graph_.transfer(*heaviest, answer_[heaviest->task], d);
        if (cost < least) least = cost, answer_[j] = d;
      }
    }
    load_[answer_[j]] += graph_.ns(j, answer_[j]);
    ns_[j] += graph_.ns(j, answer_[j]);
    for (const TaskArc arc : graph_.reads(j))
      transfer_[arc.table] += graph_.transfer(arc, answer_[arc.task], answer_[j]);
  }
}

int64_t TaskWeights::longest_way() {
  int64_t longest = 0;
  for (uint32_t j = graph_.tasks(); j-- > 0;) {
    int64_t rest = 0;
    for (const TaskArc arc : graph_.readers(j)) rest = std::max(rest, transfer_[arc.table] + way_[arc.task]);
    way_[j] = ns_[j] + rest;
    longest = std::max(longest, way_[j]);
  }
  return longest;
}

void TaskWeights::weigh() {
  const auto device = std::max_element(load_.begin(), load_.end());
  const int64_t longest = longest_way();
  if (*device >= longest) {
    ++of_device_[device - load_.begin()];
    return;
  }
  auto j = static_cast<uint32_t>(std::find(way_.begin(), way_.end(), longest) - way_.begin());
  for (bool more = true; more;) {
    ++of_task_[j];
    more = false;
    for (const TaskArc arc : graph_.readers(j))
      if (!more && ns_[j] + transfer_[arc.table] + way_[arc.task] == way_[j]) {
        ++of_arc_[arc.table];
        ++into_[arc.task];
        j = arc.task;
        more = true;
        break;
      }
  }
}

}  // namespace spmdx
