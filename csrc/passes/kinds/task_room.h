// SPDX-License-Identifier: Apache-2.0
// Task room: the memory that tasks leave on their devices, where what several of them read lies once.
#pragma once
#include <algorithm>

#include "passes/kinds/task_graph.h"

namespace spmdx {

class TaskRoom {
 public:
  explicit TaskRoom(const TaskGraph& graph) { reset(graph); }

  void reset(const TaskGraph& graph) {
    left_.assign(graph.devices(), 0);
    for (uint32_t d = 0; d < graph.devices(); ++d) left_[d] = graph.memory(d);
    readers_.assign(graph.devices() * graph.shared_values(), 0);
  }
  void put(const TaskGraph& graph, uint32_t task, uint32_t device) {
    left_[device] -= graph.bytes(task);
    for (const uint32_t value : graph.shared(task))
      if (readers(graph, device, value)++ == 0) left_[device] -= graph.shared_bytes(value);
  }
  void take(const TaskGraph& graph, uint32_t task, uint32_t device) {
    left_[device] += graph.bytes(task);
    for (const uint32_t value : graph.shared(task))
      if (--readers(graph, device, value) == 0) left_[device] += graph.shared_bytes(value);
  }
  void move(const TaskGraph& graph, uint32_t task, uint32_t from, uint32_t to) {
    take(graph, task, from);
    put(graph, task, to);
  }

  // What the task would take there, beside what lies there already.
  int64_t needs(const TaskGraph& graph, uint32_t task, uint32_t device) const {
    int64_t bytes = graph.bytes(task);
    for (const uint32_t value : graph.shared(task))
      if (readers_[device * graph.shared_values() + value] == 0) bytes += graph.shared_bytes(value);
    return bytes;
  }
  bool holds(const TaskGraph& graph, uint32_t task, uint32_t device) const {
    return needs(graph, task, device) <= left_[device];
  }

  // Bytes, by device; negative: so many are lacking.
  const std::vector<int64_t>& left() const { return left_; }
  bool all_fit() const {
    return std::ranges::all_of(left_, [](int64_t bytes) { return bytes >= 0; });
  }
  int64_t lacks() const {
    int64_t sum = 0;
    for (const int64_t bytes : left_) sum += std::max<int64_t>(0, -bytes);
    return sum;
  }
  uint32_t fullest() const { return static_cast<uint32_t>(std::ranges::min_element(left_) - left_.begin()); }

 private:
  uint32_t& readers(const TaskGraph& graph, uint32_t device, uint32_t value) {
    return readers_[device * graph.shared_values() + value];
  }

  std::vector<int64_t> left_;
  std::vector<uint32_t> readers_;  // by device and shared value: tasks there
};

}  // namespace spmdx
