// SPDX-License-Identifier: Apache-2.0
// Task graph: tasks and devices, checked, with the times of all transfers at hand.
#pragma once
#include "passes/kinds/tasks.h"

namespace spmdx {

// A read, seen from either end.
struct TaskArc {
  uint32_t task;   // at the other end
  uint32_t table;  // of its transfers
};

class TaskGraph {
 public:
  // Throws ShardingError for a task that no device can run.
  TaskGraph(const std::vector<Task>& tasks, const Devices& devices);

  uint32_t tasks() const { return static_cast<uint32_t>(reads_.size()); }
  uint32_t devices() const { return static_cast<uint32_t>(memory_.size()); }
  int64_t ns(uint32_t task, uint32_t device) const { return ns_[task * memory_.size() + device]; }
  bool runs(uint32_t task, uint32_t device) const { return ns(task, device) != kNever; }
  int64_t bytes(uint32_t task) const { return bytes_[task]; }  // without what it shares
  const std::vector<uint32_t>& shared(uint32_t task) const { return shared_[task]; }
  int64_t shared_bytes(uint32_t value) const { return shared_bytes_[value]; }
  size_t shared_values() const { return shared_bytes_.size(); }
  int64_t bytes_alone(uint32_t task) const;  // with all that it shares
  // With its part of what it shares: tasks on one device take no less than the sum of these.
  int64_t least_bytes(uint32_t task) const { return least_bytes_[task]; }
  int64_t bytes_together(const std::vector<uint32_t>& tasks) const;  // on one device
  int64_t memory(uint32_t device) const { return memory_[device]; }
  const std::vector<TaskArc>& reads(uint32_t task) const { return reads_[task]; }
  const std::vector<TaskArc>& readers(uint32_t task) const { return readers_[task]; }
  // Of what the arc carries.
  int64_t transfer(TaskArc arc, uint32_t from, uint32_t to) const {
    return transfers_[(arc.table * memory_.size() + from) * memory_.size() + to];
  }
  size_t arcs() const { return arcs_; }

 private:
  void add_task(const Task& task);
  void share();
  void add_read(uint32_t reader, TaskRead read, const Devices& devices);
  void check_total() const;

  std::vector<int64_t> ns_, bytes_, least_bytes_, memory_, transfers_, shared_bytes_;
  std::vector<std::vector<uint32_t>> shared_;
  std::vector<std::vector<TaskArc>> reads_, readers_;
  uint32_t arcs_ = 0;
};

}  // namespace spmdx
