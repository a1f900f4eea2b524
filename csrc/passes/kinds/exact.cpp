// SPDX-License-Identifier: Apache-2.0
// Exact: devices in depth, pruned by paths, by what each device has to do and by memory; then orders in depth.
#include "passes/kinds/exact.h"

#include <algorithm>
#include <tuple>

#include "passes/kinds/list_schedule.h"

namespace spmdx {
namespace {

// Tasks before each one, as bits: also those that are only read by what it reads.
std::vector<uint64_t> ancestors(const TaskGraph& graph) {
  std::vector<uint64_t> before(graph.tasks(), 0);
  for (uint32_t j = 0; j < graph.tasks(); ++j)
    for (const TaskArc arc : graph.reads(j)) before[j] |= before[arc.task] | uint64_t{1} << arc.task;
  return before;
}

class Shortest {
 public:
  Shortest(const TaskGraph& graph, const TaskSequences& start)
      : graph_(graph),
        least_tail_(least_tails(graph)),
        device_(graph.tasks(), kNone),
        head_(graph.tasks()),
        tail_(graph.tasks()),
        end_(graph.tasks()),
        free_(graph.devices()),
        best_(start),
        room_(graph),
        used_(graph.devices()) {
    TaskTimes times;
    times.run(graph, start);
    best_ns_ = times.ns;
    for (uint32_t d = 0; d < graph.devices(); ++d) twin_.push_back(first_twin(d));
    before_ = ancestors(graph);
  }

  TaskSequences run() {
    if (best_ns_ > 0) choose_device(0);
    return best_;
  }

 private:
  // The first device that cannot be told from this one.
  uint32_t first_twin(uint32_t device) const {
    for (uint32_t other = 0; other < device; ++other)
      if (alike(other, device)) return other;
    return device;
  }
  bool alike(uint32_t a, uint32_t b) const {
    if (graph_.memory(a) != graph_.memory(b)) return false;
    for (uint32_t j = 0; j < graph_.tasks(); ++j) {
      if (graph_.ns(j, a) != graph_.ns(j, b)) return false;
      for (const TaskArc arc : graph_.reads(j)) {
        if (graph_.transfer(arc, a, b) != graph_.transfer(arc, b, a)) return false;
        for (uint32_t d = 0; d < graph_.devices(); ++d)
          if (d != a && d != b &&
              (graph_.transfer(arc, a, d) != graph_.transfer(arc, b, d) ||
               graph_.transfer(arc, d, a) != graph_.transfer(arc, d, b)))
            return false;
      }
    }
    return true;
  }
  // Of devices that are alike and have nothing to do, one is as good as another.
  bool same_as_an_earlier(uint32_t device) const {
    for (uint32_t other = 0; other < device; ++other)
      if (twin_[other] == twin_[device] && used_[other] == 0 && used_[device] == 0) return true;
    return false;
  }

  void choose_device(uint32_t task) {
    if (task == graph_.tasks()) return order_tasks();
    for (uint32_t d = 0; d < graph_.devices(); ++d) {
      if (!graph_.runs(task, d) || !room_.holds(graph_, task, d) || same_as_an_earlier(d)) continue;
      device_[task] = d;
      head_[task] = head(task);
      if (head_[task] + graph_.ns(task, d) + least_tail_[task * graph_.devices() + d] >= best_ns_) continue;
      room_.put(graph_, task, d);
      ++used_[d];
      if (loads(task + 1) < best_ns_) choose_device(task + 1);
      room_.take(graph_, task, d);
      --used_[d];
    }
    device_[task] = kNone;
  }

  // Of a task whose device is chosen: by paths, and by what must run before it on its device.
  int64_t head(uint32_t task) const {
    int64_t ready = 0;
    for (const TaskArc arc : graph_.reads(task))
      ready = std::max(ready, end_of(arc.task) + graph_.transfer(arc, device_[arc.task], device_[task]));
    int64_t first = kNever, sum = 0;
    for (uint32_t j = 0; j < task; ++j)
      if (before_[task] >> j & 1 && device_[j] == device_[task])
        first = std::min(first, head_[j]), sum += graph_.ns(j, device_[j]);
    return first == kNever ? ready : std::max(ready, first + sum);
  }
  int64_t end_of(uint32_t task) const { return head_[task] + graph_.ns(task, device_[task]); }

  // What the devices of the first `chosen` tasks have to do, and all of them together, if the others take their best.
  int64_t loads(uint32_t chosen) const {
    int64_t longest = 0, all = 0;
    for (uint32_t d = 0; d < graph_.devices(); ++d) {
      int64_t sum = 0, first = kNever, last = kNever;
      for (uint32_t j = 0; j < chosen; ++j)
        if (device_[j] == d) {
          sum += graph_.ns(j, d);
          first = std::min(first, head_[j]);
          last = std::min(last, least_tail_[j * graph_.devices() + d]);
        }
      all += sum;
      if (sum > 0) longest = std::max(longest, first + sum + last);
    }
    for (uint32_t j = chosen; j < graph_.tasks(); ++j) {
      int64_t least = kNever;
      for (uint32_t d = 0; d < graph_.devices(); ++d) least = std::min(least, graph_.ns(j, d));
      all += least;
    }
    return std::max(longest, (all + graph_.devices() - 1) / graph_.devices());
  }

  // All devices are chosen.
  void order_tasks() {
    for (uint32_t j = graph_.tasks(); j-- > 0;) {
      tail_[j] = 0;
      for (const TaskArc arc : graph_.readers(j))
        tail_[j] = std::max(tail_[j], graph_.transfer(arc, device_[j], device_[arc.task]) +
                                          graph_.ns(arc.task, device_[arc.task]) + tail_[arc.task]);
      if (head_[j] + graph_.ns(j, device_[j]) + tail_[j] >= best_ns_) return;
    }
    std::fill(free_.begin(), free_.end(), 0);
    order_.clear();
    append(0, 0);
  }

  // Schedules where nothing starts before what was appended last. `done`: tasks, as bits.
  void append(uint64_t done, int64_t now) {
    if (order_.size() == graph_.tasks()) return keep();
    if (remaining(done, now) >= best_ns_) return;
    std::vector<std::pair<int64_t, uint32_t>> next;
    int64_t soonest = kNever;  // that anything could end, by device alone: what starts later leaves a gap for it
    for (uint32_t j = 0; j < graph_.tasks(); ++j)
      if (!(done >> j & 1) && (before_[j] & ~done) == 0) next.emplace_back(ready(j), j);
    std::sort(next.begin(), next.end(), [&](const auto& a, const auto& b) {
      return std::make_tuple(a.first, -tail_[a.second], a.second) <
             std::make_tuple(b.first, -tail_[b.second], b.second);
    });
    for (const auto& [start, j] : next) {
      soonest = ends_before(next, start, device_[j]);
      if (start < now || soonest <= start) continue;
      const int64_t free = free_[device_[j]];
      free_[device_[j]] = end_[j] = start + graph_.ns(j, device_[j]);
      order_.push_back(j);
      if (end_[j] + tail_[j] < best_ns_) append(done | uint64_t{1} << j, start);
      order_.pop_back();
      free_[device_[j]] = free;
    }
  }
  // When another task of the device could end that starts before `start`: with time to spare, it would run first.
  int64_t ends_before(const std::vector<std::pair<int64_t, uint32_t>>& next, int64_t start, uint32_t device) const {
    int64_t least = kNever;
    for (const auto& [other, j] : next)
      if (device_[j] == device && other < start) least = std::min(least, other + graph_.ns(j, device));
    return least;
  }
  int64_t ready(uint32_t task) const {
    int64_t at = std::max(free_[device_[task]], head_[task]);
    for (const TaskArc arc : graph_.reads(task))
      at = std::max(at, end_[arc.task] + graph_.transfer(arc, device_[arc.task], device_[task]));
    return at;
  }
  // What is left on each device, between the soonest start and the shortest tail.
  int64_t remaining(uint64_t done, int64_t now) const {
    int64_t longest = 0;
    for (uint32_t d = 0; d < graph_.devices(); ++d) {
      int64_t sum = 0, first = kNever, last = kNever;
      for (uint32_t j = 0; j < graph_.tasks(); ++j)
        if (!(done >> j & 1) && device_[j] == d) {
          sum += graph_.ns(j, d);
          first = std::min(first, std::max({now, head_[j], free_[d]}));
          last = std::min(last, tail_[j]);
        }
      if (first != kNever) longest = std::max(longest, first + sum + last);
    }
    return longest;
  }

  void keep() {
    const int64_t ns = *std::max_element(end_.begin(), end_.end());
    if (ns >= best_ns_) return;
    best_ns_ = ns;
    best_ = TaskSequences(graph_, device_, order_);
  }

  const TaskGraph& graph_;
  std::vector<int64_t> least_tail_;
  std::vector<uint32_t> device_;
  std::vector<int64_t> head_, tail_;  // of tasks, while devices are chosen and when all are
  std::vector<int64_t> end_, free_;   // while they are ordered: of tasks, of devices
  std::vector<uint32_t> order_;
  TaskSequences best_;
  int64_t best_ns_ = 0;
  TaskRoom room_;
  std::vector<uint32_t> used_, twin_;  // by device: tasks, and the first device like it
  std::vector<uint64_t> before_;
};

}  // namespace

TaskSequences shortest(const TaskGraph& graph, const TaskSequences& start) { return Shortest(graph, start).run(); }

}  // namespace spmdx
