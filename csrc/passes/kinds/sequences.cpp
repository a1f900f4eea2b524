// SPDX-License-Identifier: Apache-2.0
#include "passes/kinds/sequences.h"

#include <algorithm>

namespace spmdx {

TaskSequences::TaskSequences(const TaskGraph& graph)
    : device(graph.tasks(), kNone),
      next(graph.tasks(), kNone),
      previous(graph.tasks(), kNone),
      first(graph.devices(), kNone),
      last(graph.devices(), kNone),
      room(graph) {}

TaskSequences::TaskSequences(const TaskGraph& graph, const std::vector<uint32_t>& devices,
                             const std::vector<uint32_t>& order)
    : TaskSequences(graph) {
  assign(graph, devices, order);
}

void TaskSequences::assign(const TaskGraph& graph, const std::vector<uint32_t>& devices,
                           const std::vector<uint32_t>& order) {
  std::fill(first.begin(), first.end(), kNone);
  std::fill(last.begin(), last.end(), kNone);
  room.reset(graph);
  for (const uint32_t task : order) insert(graph, task, devices[task], kNone);
}

void TaskSequences::insert(const TaskGraph& graph, uint32_t task, uint32_t on, uint32_t before) {
  const uint32_t behind = before == kNone ? last[on] : previous[before];
  device[task] = on;
  next[task] = before;
  previous[task] = behind;
  (behind == kNone ? first[on] : next[behind]) = task;
  (before == kNone ? last[on] : previous[before]) = task;
  room.put(graph, task, on);
}

void TaskSequences::remove(const TaskGraph& graph, uint32_t task) {
  const uint32_t on = device[task];
  (previous[task] == kNone ? first[on] : next[previous[task]]) = next[task];
  (next[task] == kNone ? last[on] : previous[next[task]]) = previous[task];
  room.take(graph, task, on);
}

bool TaskTimes::run(const TaskGraph& graph, const TaskSequences& sequences, uint32_t without) {
  const uint32_t tasks = graph.tasks();
  start.resize(tasks);
  end.resize(tasks);
  place.resize(tasks);
  waits_.resize(tasks);
  order.clear();
  ns = 0;
  for (uint32_t j = 0; j < tasks; ++j) {
    waits_[j] = static_cast<uint32_t>(graph.reads(j).size()) + (sequences.previous[j] != kNone);
    if (j != without && waits_[j] == 0) order.push_back(j);
  }
  const auto done = [&](uint32_t task) {
    if (--waits_[task] == 0) order.push_back(task);
  };
  if (without != kNone) {
    waits_[without] = 0;
    for (const TaskArc arc : graph.readers(without)) done(arc.task);
  }
  for (size_t at = 0; at < order.size(); ++at) {
    const uint32_t j = order[at], on = sequences.device[j];
    int64_t ready = sequences.previous[j] == kNone ? 0 : end[sequences.previous[j]];
    for (const TaskArc arc : graph.reads(j))
      if (arc.task != without)
        ready = std::max(ready, end[arc.task] + graph.transfer(arc, sequences.device[arc.task], on));
    start[j] = ready;
    end[j] = ready + graph.ns(j, on);
    place[j] = static_cast<uint32_t>(at);
    ns = std::max(ns, end[j]);
    if (sequences.next[j] != kNone) done(sequences.next[j]);
    for (const TaskArc arc : graph.readers(j))
      if (arc.task != without) done(arc.task);
  }
  return order.size() + (without != kNone) == tasks;
}

void TaskTimes::run_back(const TaskGraph& graph, const TaskSequences& sequences, uint32_t without) {
  tail.resize(graph.tasks());
  for (size_t at = order.size(); at-- > 0;) {
    const uint32_t j = order[at], on = sequences.device[j], behind = sequences.next[j];
    int64_t rest = behind == kNone ? 0 : graph.ns(behind, on) + tail[behind];
    for (const TaskArc arc : graph.readers(j))
      if (arc.task != without) {
        const uint32_t there = sequences.device[arc.task];
        rest = std::max(rest, graph.transfer(arc, on, there) + graph.ns(arc.task, there) + tail[arc.task]);
      }
    tail[j] = rest;
  }
}

std::vector<uint32_t> TaskTimes::by_start() const {
  std::vector<uint32_t> by_start = order;
  std::ranges::stable_sort(by_start, {}, [&](uint32_t task) { return start[task]; });
  return by_start;
}

void TimesInOrder::run(const TaskGraph& graph, const std::vector<uint32_t>& device,
                       const std::vector<uint32_t>& order) {
  start.resize(graph.tasks());
  end.resize(graph.tasks());
  done.assign(graph.devices(), 0);
  room.reset(graph);
  ns = 0;
  for (const uint32_t j : order) {
    const uint32_t on = device[j];
    int64_t ready = done[on];
    for (const TaskArc arc : graph.reads(j))
      ready = std::max(ready, end[arc.task] + graph.transfer(arc, device[arc.task], on));
    start[j] = ready;
    end[j] = done[on] = ready + graph.ns(j, on);
    room.put(graph, j, on);
    ns = std::max(ns, end[j]);
  }
}

void TimesInOrder::by_start(std::vector<uint32_t>& order) const {
  std::ranges::stable_sort(order, {}, [&](uint32_t task) { return start[task]; });
}

TaskAssignment to_assignment(const TaskGraph& graph, const TaskSequences& sequences) {
  TaskTimes times;
  internal_check(times.run(graph, sequences), "tasks that wait for each other");
  // Where starts are equal, who is waited for comes first: it takes no time.
  std::stable_sort(times.order.begin(), times.order.end(),
                   [&](uint32_t a, uint32_t b) { return times.start[a] < times.start[b]; });
  return {sequences.device, times.start, times.end, times.order, times.ns};
}

}  // namespace spmdx
