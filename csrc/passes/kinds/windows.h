// SPDX-License-Identifier: Apache-2.0
// Windows: from when to when each task could run on each device, if all were done by some time; and what that refutes.
#pragma once
#include <utility>

#include "passes/kinds/task_graph.h"

namespace spmdx {

// Tasks before each one: also those that are only read by what it reads.
using TaskAncestors = std::vector<std::vector<bool>>;
TaskAncestors task_ancestors(const TaskGraph& graph);

// Tasks that must share a device, as all ways to send what joins them take too long, are one cluster. Tasks of one
// device run one after the other.
class TaskWindows {
 public:
  TaskWindows(const TaskGraph& graph, const TaskAncestors& ancestors, int64_t within_ns);

  // False where no assignment takes within_ns or less. Nothing is found out beyond that by calling it again.
  bool tighten();
  // The tasks of a cluster run on this device.
  void fix(uint32_t cluster, uint32_t device);

  // The first of two tasks of one device runs before the second.
  void order(uint32_t first, uint32_t second);
  // Two tasks of a device of which it is open which one runs first, those with most to do; the same twice: none are.
  std::pair<uint32_t, uint32_t> unordered() const;

  int64_t within_ns() const { return within_ns_; }
  bool can(uint32_t task, uint32_t device) const { return head(task, device) != kNever; }
  // Of a task on a device that it can run on: it starts no sooner, and so long after its end all ends at least.
  int64_t head(uint32_t task, uint32_t device) const { return head_[task * graph_.devices() + device]; }
  int64_t tail(uint32_t task, uint32_t device) const { return tail_[task * graph_.devices() + device]; }
  uint32_t cluster(uint32_t task) const { return cluster_[task]; }  // the first task of it
  const std::vector<uint32_t>& members(uint32_t cluster) const { return members_[cluster]; }
  // That with most to do, of those that are not fixed and have so many devices left; as many as tasks: there is none.
  uint32_t open_cluster(uint32_t least_devices) const;
  // The device, where only one is left; else kNoDevice.
  uint32_t fixed_on(uint32_t task) const { return fixed_[task]; }
  int64_t visits() const { return visits_; }

 private:
  bool paths_forward();
  bool paths_back();
  bool join(uint32_t task, TaskArc arc);
  bool orders();
  bool before_in_time(uint32_t first, uint32_t second) const;
  bool together(uint32_t a, uint32_t b) const;
  bool queues();
  bool loads();
  bool exclude(uint32_t cluster, uint32_t device);
  bool in_time(uint32_t cluster, uint32_t device);
  std::vector<std::pair<int64_t, uint32_t>> by(const std::vector<int64_t>& times, uint32_t device) const;
  bool raise(std::vector<int64_t>& times, uint32_t task, uint32_t device, int64_t least);

  const TaskGraph& graph_;
  TaskAncestors ancestors_;  // also those that are ordered by what was found out
  int64_t within_ns_;
  std::vector<int64_t> head_, tail_;  // by task and device
  std::vector<uint32_t> cluster_, fixed_;
  std::vector<std::vector<uint32_t>> members_;  // of clusters
  bool changed_ = false;
  int64_t visits_ = 0;
};

}  // namespace spmdx
