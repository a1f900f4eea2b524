// SPDX-License-Identifier: Apache-2.0
// Sequences: a device for every task, and the order in which each device runs its own; and when they run by that.
#pragma once
#include <algorithm>

#include "passes/kinds/task_room.h"

namespace spmdx {

constexpr auto kNone = std::numeric_limits<uint32_t>::max();  // no task, or no device

// Lists with links both ways, so that tasks are taken out and put back at once.
class TaskSequences {
 public:
  explicit TaskSequences(const TaskGraph& graph);
  // Every task behind those of its device that come before it in `order`.
  TaskSequences(const TaskGraph& graph, const std::vector<uint32_t>& device, const std::vector<uint32_t>& order);

  // The same, in the place of what was here.
  void assign(const TaskGraph& graph, const std::vector<uint32_t>& device, const std::vector<uint32_t>& order);
  void insert(const TaskGraph& graph, uint32_t task, uint32_t device, uint32_t before);  // kNone: as the last one
  void remove(const TaskGraph& graph, uint32_t task);
  bool fits(const TaskGraph& graph, uint32_t task, uint32_t device) const {
    return graph.runs(task, device) && room.holds(graph, task, device);
  }
  bool all_fit() const { return room.all_fit(); }

  std::vector<uint32_t> device, next, previous;  // by task
  std::vector<uint32_t> first, last;             // by device
  TaskRoom room;
};

struct TaskTimes {
  // Without one task where `without` is one. False where tasks wait for each other in a ring.
  bool run(const TaskGraph& graph, const TaskSequences& sequences, uint32_t without = kNone);
  // What comes behind each task. REQUIRES: run.
  void run_back(const TaskGraph& graph, const TaskSequences& sequences, uint32_t without = kNone);
  // Tasks as they start, each behind all that it waits for. REQUIRES: run.
  std::vector<uint32_t> by_start() const;

  std::vector<int64_t> start, end;
  std::vector<int64_t> tail;    // from the end of a task to the end of all that wait for it
  std::vector<uint32_t> order;  // tasks behind all that they wait for
  std::vector<uint32_t> place;  // in `order`, by task
  int64_t ns = 0;

 private:
  std::vector<uint32_t> waits_;
};

// When tasks run that their devices take in one order, which is topological; and what memory they leave.
struct TimesInOrder {
  explicit TimesInOrder(const TaskGraph& graph) : room(graph) {}
  void run(const TaskGraph& graph, const std::vector<uint32_t>& device, const std::vector<uint32_t>& order);
  // Puts `order` in that of starts; where they are equal, it stays.
  void by_start(std::vector<uint32_t>& order) const;
  bool all_fit() const { return room.all_fit(); }

  std::vector<int64_t> start, end;  // by task
  std::vector<int64_t> done;        // by device
  TaskRoom room;
  int64_t ns = 0;
};

// With starts in order.
TaskAssignment to_assignment(const TaskGraph& graph, const TaskSequences& sequences);

}  // namespace spmdx
