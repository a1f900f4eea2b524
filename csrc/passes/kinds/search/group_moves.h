// SPDX-License-Identifier: Apache-2.0
// Group moves: tasks change devices together, at random, and others make room for them.
#pragma once
#include "passes/kinds/sequences.h"
#include "passes/kinds/windows.h"

namespace spmdx {

// Devices of tasks are changed in place. What must share a device for all to be done soon enough moves as one.
class GroupMoves {
 public:
  explicit GroupMoves(const TaskGraph& graph);

  // Looks for what is certain of assignments that take less than `ns`, and clearly less. Does nothing where it has
  // looked for a shorter time, or has looked at so much lately that it would not pay.
  void aim_below(int64_t ns, int64_t visits);
  // Whether it is certain that there is nothing below what was aimed at.
  bool nothing_below() const { return nothing_below_; }
  int64_t visits() const { return visits_; }

  // Each of them says which tasks have moved; empty: nothing.
  std::vector<bool> send(uint32_t task, uint32_t to, std::vector<uint32_t>& device) const;
  std::vector<bool> exchange(uint32_t a, uint32_t b, std::vector<uint32_t>& device) const;
  // Tasks that are joined by reads, or that come near each other in `order`, which is topological.
  std::vector<bool> move(std::vector<uint32_t>& device, const std::vector<uint32_t>& order);
  // Groups leave devices that hold too much for others that have room; `stays`: tasks that do not. False where some
  // device still holds too much.
  bool make_room(std::vector<uint32_t>& device, const std::vector<bool>& stays);

  // The same numbers on every machine.
  int64_t next_random();
  uint32_t any_task() { return static_cast<uint32_t>(next_random() % graph_.tasks()); }
  uint32_t any_device() { return static_cast<uint32_t>(next_random() % graph_.devices()); }

 private:
  using Group = std::vector<uint32_t>;
  const Group& unit(uint32_t task) const { return units_[unit_[task]]; }
  bool can(uint32_t task, uint32_t device) const { return can_[task * graph_.devices() + device]; }
  bool look(int64_t within_ns);
  std::vector<bool> send_a_group(std::vector<uint32_t>& device);
  std::vector<bool> exchange_devices(std::vector<uint32_t>& device, const std::vector<uint32_t>& order);
  bool put(uint32_t task, uint32_t to, std::vector<uint32_t>& device, std::vector<bool>& moved) const;
  bool move_where_it_fits(const Group& group, uint32_t from, uint32_t to, TaskRoom& room,
                          std::vector<uint32_t>& device) const;
  Group connected(uint32_t task, const std::vector<uint32_t>& device, bool alike, const std::vector<bool>& without);
  Group leaving(uint32_t full, const std::vector<uint32_t>& device, const std::vector<bool>& stays);

  const TaskGraph& graph_;
  TaskAncestors ancestors_;     // empty: too many tasks to look
  std::vector<Group> units_;    // of tasks that share a device
  std::vector<uint32_t> unit_;  // by task
  std::vector<bool> can_;       // by task and device
  int64_t aimed_below_ = kNever, visits_ = 0;
  bool nothing_below_ = false;
  uint64_t random_ = 1;
};

}  // namespace spmdx
