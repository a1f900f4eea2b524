// SPDX-License-Identifier: Apache-2.0
#include "passes/kinds/search/group_moves.h"

#include <algorithm>
#include <numeric>

namespace spmdx {
namespace {

constexpr uint32_t kMostAimed = 400;     // tasks of which is found out what is certain
constexpr int64_t kAim = 20;             // of a time so much shorter than the best, in parts of it
constexpr int64_t kAimShare = 8;         // and that takes so small a part of all that is looked at
constexpr size_t kMostInGroup = 64;      // tasks
constexpr int64_t kDevicesExchange = 3;  // of so many moves one exchanges devices
constexpr int64_t kMostExchanges = 3;    // of two devices in it
constexpr size_t kLeave = 8;             // groups that leave devices to make room

}  // namespace

GroupMoves::GroupMoves(const TaskGraph& graph) : graph_(graph) {
  if (graph.tasks() <= kMostAimed) ancestors_ = task_ancestors(graph);
  for (uint32_t j = 0; j < graph.tasks(); ++j) {
    unit_.push_back(j);
    units_.push_back({j});
    for (uint32_t d = 0; d < graph.devices(); ++d) can_.push_back(graph.runs(j, d));
  }
}

void GroupMoves::aim_below(int64_t ns, int64_t visits) {
  if (ancestors_.empty() || ns >= aimed_below_ || visits_ * kAimShare > visits) return;
  aimed_below_ = ns;
  nothing_below_ = !look(ns - ns / kAim) && !look(ns - 1);
}

// False where no assignment takes so long, or less.
bool GroupMoves::look(int64_t within_ns) {
  TaskWindows windows(graph_, ancestors_, within_ns);
  const bool possible = windows.tighten();
  visits_ += windows.visits();
  for (uint32_t j = 0; possible && j < graph_.tasks(); ++j) {
    unit_[j] = windows.cluster(j);
    units_[j] = windows.members(j);
    for (uint32_t d = 0; d < graph_.devices(); ++d) can_[j * graph_.devices() + d] = windows.can(j, d);
  }
  return possible;
}

int64_t GroupMoves::next_random() {
  random_ = random_ * 6364136223846793005U + 1442695040888963407U;
  return static_cast<int64_t>(random_ >> 40);
}

// The task, and what shares its device. False where it cannot go there, or is there.
bool GroupMoves::put(uint32_t task, uint32_t to, std::vector<uint32_t>& device, std::vector<bool>& moved) const {
  if (!can(task, to) || moved[task]) return false;
  bool any = false;
  for (const uint32_t j : unit(task)) {
    any = any || device[j] != to;
    device[j] = to;
    moved[j] = true;
  }
  return any;
}

std::vector<bool> GroupMoves::send(uint32_t task, uint32_t to, std::vector<uint32_t>& device) const {
  std::vector<bool> moved(graph_.tasks(), false);
  if (!put(task, to, device, moved)) moved.clear();
  return moved;
}

std::vector<bool> GroupMoves::exchange(uint32_t a, uint32_t b, std::vector<uint32_t>& device) const {
  std::vector<bool> moved(graph_.tasks(), false);
  const uint32_t here = device[a], there = device[b];
  if (here == there || !put(a, there, device, moved) || !put(b, here, device, moved)) moved.clear();
  return moved;
}

std::vector<bool> GroupMoves::move(std::vector<uint32_t>& device, const std::vector<uint32_t>& order) {
  return next_random() % kDevicesExchange == 0 ? exchange_devices(device, order) : send_a_group(device);
}

// A group goes to one device; some in exchange for another group.
std::vector<bool> GroupMoves::send_a_group(std::vector<uint32_t>& device) {
  std::vector<bool> moved(graph_.tasks(), false);
  const std::vector<bool> none = moved;
  const uint32_t task = any_task(), home = device[task], to = any_device();
  const bool exchanged = next_random() % 3 == 0, alike = next_random() % 2 == 0;
  for (const uint32_t j : connected(task, device, alike, none)) put(j, to, device, moved);
  if (const uint32_t other = any_task(); exchanged && !moved[other] && device[other] == to)
    for (const uint32_t j : connected(other, device, true, none)) put(j, home, device, moved);
  return moved;
}

// Devices change places for tasks next to each other in the order, or for all.
std::vector<bool> GroupMoves::exchange_devices(std::vector<uint32_t>& device, const std::vector<uint32_t>& order) {
  std::vector<bool> moved(graph_.tasks(), false);
  std::vector<uint32_t> to(graph_.devices());
  std::iota(to.begin(), to.end(), 0);
  for (int64_t i = next_random() % kMostExchanges; i >= 0; --i) {
    const uint32_t a = any_device(), b = any_device();
    std::swap(to[a], to[b]);
  }
  size_t from = 0, until = order.size();
  if (next_random() % 3 != 0) {
    from = any_task();
    until = from + 1 + next_random() % (order.size() - from);
  }
  for (size_t at = from; at < until; ++at)
    if (const uint32_t j = order[at]; to[device[j]] != device[j]) put(j, to[device[j]], device, moved);
  return moved;
}

bool GroupMoves::make_room(std::vector<uint32_t>& device, const std::vector<bool>& stays) {
  TaskRoom room(graph_);
  for (uint32_t j = 0; j < graph_.tasks(); ++j) room.put(graph_, j, device[j]);
  for (size_t i = 0; i <= kLeave; ++i) {
    const uint32_t full = room.fullest();
    if (room.left()[full] >= 0) return true;
    const Group group = leaving(full, device, stays);
    if (group.empty()) return false;
    const uint32_t first = any_device();
    for (uint32_t k = 0; k < graph_.devices(); ++k) {
      const uint32_t to = (first + k) % graph_.devices();
      if (to != full && move_where_it_fits(group, full, to, room, device)) break;
    }
  }
  return false;
}

bool GroupMoves::move_where_it_fits(const Group& group, uint32_t from, uint32_t to, TaskRoom& room,
                                    std::vector<uint32_t>& device) const {
  if (!std::ranges::all_of(group, [&](uint32_t j) { return can(j, to); })) return false;
  size_t moved = 0;
  while (moved < group.size() && room.holds(graph_, group[moved], to)) room.move(graph_, group[moved++], from, to);
  if (moved == group.size())
    for (const uint32_t j : group) device[j] = to;
  else
    while (moved > 0) room.move(graph_, group[--moved], to, from);
  return moved == group.size();
}

// A task that takes room, with what shares its device, or what is joined to it there.
GroupMoves::Group GroupMoves::leaving(uint32_t full, const std::vector<uint32_t>& device,
                                      const std::vector<bool>& stays) {
  Group here;
  for (uint32_t j = 0; j < graph_.tasks(); ++j)
    if (device[j] == full && !stays[j] && graph_.bytes_alone(j) > 0) here.push_back(j);
  if (here.empty()) return here;
  const uint32_t task = here[next_random() % here.size()];
  if (next_random() % 2 == 0) return connected(task, device, true, stays);
  Group group;
  for (const uint32_t j : unit(task))
    if (device[j] == full && !stays[j]) group.push_back(j);
  return group;
}

// Tasks that are joined to this one by arcs, the nearest first: its readers and theirs, what it reads, or both.
// `alike`: on its device.
GroupMoves::Group GroupMoves::connected(uint32_t task, const std::vector<uint32_t>& device, bool alike,
                                        const std::vector<bool>& without) {
  const size_t most = 1 + next_random() % std::min<size_t>(kMostInGroup, graph_.tasks());
  const int64_t ways = next_random() % 4;  // 0: not forward; 1: not back
  Group found{task};
  std::vector<bool> in = without;
  in[task] = true;
  for (size_t at = 0; at < found.size(); ++at)
    for (const bool back : {false, true})
      for (const TaskArc arc : back ? graph_.reads(found[at]) : graph_.readers(found[at])) {
        const bool other_way = ways == (back ? 1 : 0);
        if (other_way || in[arc.task] || found.size() >= most || (alike && device[arc.task] != device[task])) continue;
        in[arc.task] = true;
        found.push_back(arc.task);
      }
  return found;
}

}  // namespace spmdx
