// SPDX-License-Identifier: Apache-2.0
// Moves: one task taken out of its device's sequence and put into any place of any, with the makespan that follows.
#pragma once
#include <algorithm>

#include "passes/kinds/sequences.h"

namespace spmdx {

struct TaskMove {
  uint32_t task = kNone, device = kNone, before = kNone;
  int64_t ns = kNever;       // the makespan then, or a little more
  int64_t through = kNever;  // the longest way through the task then
  bool operator<(const TaskMove& other) const { return ns != other.ns ? ns < other.ns : through < other.through; }
};

// Places for one task after the other; sequences are as before after each.
class TaskMoves {
 public:
  TaskMoves(const TaskGraph& graph, TaskSequences& sequences) : graph_(graph), sequences_(sequences) {}

  // Calls take(move) for every place that makes no ring, but for that where the task is.
  template <class Take>
  void each(uint32_t task, const Take& take) {
    const uint32_t home = sequences_.device[task], behind = sequences_.next[task];
    sequences_.remove(graph_, task);
    times_.run(graph_, sequences_, task);
    times_.run_back(graph_, sequences_, task);
    for (uint32_t d = 0; d < graph_.devices(); ++d)
      if (sequences_.fits(graph_, task, d)) places_on(task, d, d == home ? behind : task, take);
    sequences_.insert(graph_, task, home, behind);
  }
  // Tasks that were looked at.
  int64_t seen() const { return seen_; }

 private:
  // What the task waits for, and what waits for it, on one device.
  struct Ends {
    int64_t ready = 0, rest = 0;
    int64_t latest_start = 0, earliest_end = kNever;  // of what it reads, of its readers
    uint32_t last_place = 0, first_place = kNone;     // the same in a topological order
  };
  Ends ends(uint32_t task, uint32_t device) const {
    Ends found;
    for (const TaskArc arc : graph_.reads(task)) {
      found.ready =
          std::max(found.ready, times_.end[arc.task] + graph_.transfer(arc, sequences_.device[arc.task], device));
      found.latest_start = std::max(found.latest_start, times_.start[arc.task]);
      found.last_place = std::max(found.last_place, times_.place[arc.task] + 1);
    }
    for (const TaskArc arc : graph_.readers(task)) {
      const uint32_t there = sequences_.device[arc.task];
      found.rest = std::max(found.rest,
                            graph_.transfer(arc, device, there) + graph_.ns(arc.task, there) + times_.tail[arc.task]);
      found.earliest_end = std::min(found.earliest_end, times_.end[arc.task]);
      found.first_place = std::min(found.first_place, times_.place[arc.task]);
    }
    return found;
  }

  // `skipped`: the task before which no place is looked at; the moved task: none is skipped.
  template <class Take>
  void places_on(uint32_t task, uint32_t device, uint32_t skipped, const Take& take) {
    const Ends found = ends(task, device);
    const int64_t ns = graph_.ns(task, device);
    for (uint32_t next = sequences_.first[device], previous = kNone;; previous = next, next = sequences_.next[next]) {
      ++seen_;
      if (next != skipped && no_ring(found, previous, next)) {
        const int64_t free = previous == kNone ? 0 : times_.end[previous];
        const int64_t rest = next == kNone ? 0 : graph_.ns(next, device) + times_.tail[next];
        const int64_t through = std::max(found.ready, free) + ns + std::max(found.rest, rest);
        take(TaskMove{task, device, next, std::max(times_.ns, through), through});
      }
      if (next == kNone) return;
    }
  }
  // No reader leads to `previous`, and `next` to nothing that the task reads; some such places are not recognised.
  bool no_ring(const Ends& found, uint32_t previous, uint32_t next) const {
    const bool before =
        previous == kNone || times_.place[previous] < found.first_place || times_.start[previous] < found.earliest_end;
    const bool after = next == kNone || times_.place[next] >= found.last_place || times_.end[next] > found.latest_start;
    return before && after;
  }

  const TaskGraph& graph_;
  TaskSequences& sequences_;
  TaskTimes times_;
  int64_t seen_ = 0;
};

}  // namespace spmdx
