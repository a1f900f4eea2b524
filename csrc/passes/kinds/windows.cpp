// SPDX-License-Identifier: Apache-2.0
#include "passes/kinds/windows.h"

#include <algorithm>
#include <queue>

#include "passes/kinds/list_schedule.h"

namespace spmdx {
namespace {

constexpr int kRounds = 6;  // of tightening: what is found later is little

struct QueuedTask {
  int64_t head, ns, tail;
};

// The least makespan of tasks on one device, which may interrupt them: the longest tail first (Jackson), which is the
// most of min head + Σ ns + min tail over all sets.
int64_t one_device_ns(std::vector<QueuedTask>& tasks) {
  std::sort(tasks.begin(), tasks.end(), [](const auto& a, const auto& b) { return a.head < b.head; });
  std::priority_queue<std::pair<int64_t, int64_t>> ready;  // tail, what is left
  int64_t now = 0, longest = 0;
  for (size_t at = 0; at < tasks.size() || !ready.empty();) {
    if (ready.empty()) now = std::max(now, tasks[at].head);
    for (; at < tasks.size() && tasks[at].head <= now; ++at) ready.emplace(tasks[at].tail, tasks[at].ns);
    auto [tail, left] = ready.top();
    ready.pop();
    const int64_t until = at < tasks.size() ? std::min(now + left, tasks[at].head) : now + left;
    left -= until - now;
    now = until;
    if (left > 0)
      ready.emplace(tail, left);
    else
      longest = std::max(longest, now + tail);
  }
  return longest;
}

}  // namespace

TaskAncestors task_ancestors(const TaskGraph& graph) {
  TaskAncestors before(graph.tasks(), std::vector<bool>(graph.tasks(), false));
  for (uint32_t j = 0; j < graph.tasks(); ++j)
    for (const TaskArc arc : graph.reads(j)) {
      for (uint32_t i = 0; i < arc.task; ++i)
        if (before[arc.task][i]) before[j][i] = true;
      before[j][arc.task] = true;
    }
  return before;
}

TaskWindows::TaskWindows(const TaskGraph& graph, const TaskAncestors& ancestors, int64_t within_ns)
    : graph_(graph),
      ancestors_(ancestors),
      within_ns_(within_ns),
      head_(least_heads(graph)),
      tail_(least_tails(graph)),
      fixed_(graph.tasks(), kNoDevice) {
  for (uint32_t j = 0; j < graph.tasks(); ++j) {
    cluster_.push_back(j);
    members_.push_back({j});
    for (uint32_t d = 0; d < graph.devices(); ++d)
      if (!graph.runs(j, d)) head_[j * graph.devices() + d] = kNever;
  }
}

bool TaskWindows::tighten() {
  changed_ = true;
  for (int round = 0; changed_ && round < kRounds; ++round) {
    changed_ = false;
    if (!paths_forward() || !paths_back() || !orders() || !queues() || !loads()) return false;
  }
  return true;
}

void TaskWindows::fix(uint32_t cluster, uint32_t device) {
  for (const uint32_t j : members_[cluster])
    for (uint32_t d = 0; d < graph_.devices(); ++d)
      if (d != device) head_[j * graph_.devices() + d] = kNever;
  for (const uint32_t j : members_[cluster]) fixed_[j] = device;
}

uint32_t TaskWindows::open_cluster(uint32_t least_devices) const {
  uint32_t best = graph_.tasks();
  int64_t most = -1;
  for (uint32_t c = 0; c < graph_.tasks(); ++c) {
    if (members_[c].empty() || fixed_[c] != kNoDevice) continue;
    int64_t least = kNever;
    uint32_t devices = 0;
    for (uint32_t d = 0; d < graph_.devices(); ++d) {
      if (!can(c, d)) continue;
      ++devices;
      int64_t sum = 0;
      for (const uint32_t j : members_[c]) sum += graph_.ns(j, d);
      least = std::min(least, sum);
    }
    if (devices >= least_devices && least > most) most = least, best = c;
  }
  return best;
}

bool TaskWindows::raise(std::vector<int64_t>& times, uint32_t task, uint32_t device, int64_t least) {
  int64_t& time = times[task * graph_.devices() + device];
  if (least <= time) return true;
  time = least;
  changed_ = true;
  if (head(task, device) + graph_.ns(task, device) + tail(task, device) <= within_ns_) return true;
  return exclude(cluster_[task], device);
}

// False where that was the last device of the cluster.
bool TaskWindows::exclude(uint32_t cluster, uint32_t device) {
  changed_ = true;
  for (const uint32_t j : members_[cluster]) head_[j * graph_.devices() + device] = kNever;
  uint32_t count = 0, last = kNoDevice;
  for (uint32_t d = 0; d < graph_.devices(); ++d)
    if (can(cluster, d)) ++count, last = d;
  if (count == 1)
    for (const uint32_t j : members_[cluster]) fixed_[j] = last;
  return count > 0;
}

// Heads by what is read, from each device from which it comes in time.
bool TaskWindows::paths_forward() {
  const uint32_t devices = graph_.devices();
  for (uint32_t j = 0; j < graph_.tasks(); ++j)
    for (uint32_t d = 0; d < devices; ++d) {
      if (!can(j, d)) continue;
      int64_t ready = head(j, d);
      for (const TaskArc arc : graph_.reads(j)) {
        int64_t least = kNever;
        for (uint32_t e = 0; e < devices; ++e)
          if (can(arc.task, e) && (e == d || cluster_[j] != cluster_[arc.task]))
            least = std::min(least, head(arc.task, e) + graph_.ns(arc.task, e) + graph_.transfer(arc, e, d));
        ready = std::max(ready, least);
      }
      visits_ += devices * static_cast<int64_t>(graph_.reads(j).size()) + 1;
      if (ready > within_ns_ || ready + graph_.ns(j, d) + tail(j, d) > within_ns_) {
        if (!exclude(cluster_[j], d)) return false;
      } else if (!raise(head_, j, d, ready)) {
        return false;
      }
    }
  return true;
}

// Tails by readers; clusters where a reader must be on the same device.
bool TaskWindows::paths_back() {
  const uint32_t devices = graph_.devices();
  for (uint32_t j = graph_.tasks(); j-- > 0;) {
    for (uint32_t d = 0; d < devices; ++d) {
      if (!can(j, d)) continue;
      int64_t rest = tail(j, d);
      for (const TaskArc arc : graph_.readers(j)) {
        int64_t least = kNever;
        for (uint32_t e = 0; e < devices; ++e)
          if (can(arc.task, e) && (e == d || cluster_[j] != cluster_[arc.task]))
            least = std::min(least, graph_.transfer(arc, d, e) + graph_.ns(arc.task, e) + tail(arc.task, e));
        rest = std::max(rest, least);
      }
      visits_ += devices * static_cast<int64_t>(graph_.readers(j).size()) + 1;
      if (rest > within_ns_ || head(j, d) + graph_.ns(j, d) + rest > within_ns_) {
        if (!exclude(cluster_[j], d)) return false;
      } else if (!raise(tail_, j, d, rest)) {
        return false;
      }
    }
    for (const TaskArc arc : graph_.readers(j))
      if (!join(j, arc)) return false;
  }
  return true;
}

// False where the cluster that the two tasks become has no device.
bool TaskWindows::join(uint32_t task, TaskArc arc) {
  const uint32_t devices = graph_.devices(), reader = arc.task;
  if (cluster_[task] == cluster_[reader]) return true;
  for (uint32_t d = 0; d < devices; ++d)
    for (uint32_t e = 0; e < devices; ++e)
      if (d != e && can(task, d) && can(reader, e) &&
          head(task, d) + graph_.ns(task, d) + graph_.transfer(arc, d, e) + graph_.ns(reader, e) + tail(reader, e) <=
              within_ns_)
        return true;
  changed_ = true;
  const uint32_t kept = std::min(cluster_[task], cluster_[reader]), gone = std::max(cluster_[task], cluster_[reader]);
  std::vector<uint32_t> both = members_[kept];
  both.insert(both.end(), members_[gone].begin(), members_[gone].end());
  for (const uint32_t j : members_[gone]) cluster_[j] = kept;
  members_[kept] = std::move(both);
  members_[gone].clear();
  bool any = false;
  for (uint32_t d = 0; d < devices; ++d) {
    const bool possible = can(kept, d) && can(gone, d);
    if (!possible) exclude(kept, d);
    any = any || possible;
  }
  return any;
}

std::vector<std::pair<int64_t, uint32_t>> TaskWindows::by(const std::vector<int64_t>& times, uint32_t device) const {
  std::vector<std::pair<int64_t, uint32_t>> order;
  for (uint32_t j = 0; j < graph_.tasks(); ++j)
    if (can(j, device)) order.emplace_back(times[j * graph_.devices() + device], j);
  std::sort(order.begin(), order.end());
  return order;
}

bool TaskWindows::together(uint32_t a, uint32_t b) const {
  return cluster_[a] == cluster_[b] || (fixed_[a] != kNoDevice && fixed_[a] == fixed_[b]);
}

bool TaskWindows::before_in_time(uint32_t first, uint32_t second) const {
  for (uint32_t d = 0; d < graph_.devices(); ++d)
    if (can(first, d) && can(second, d) &&
        head(first, d) + graph_.ns(first, d) + graph_.ns(second, d) + tail(second, d) <= within_ns_)
      return true;
  return false;
}

// Of two tasks of a device, one runs first: that which can.
bool TaskWindows::orders() {
  for (uint32_t a = 0; a < graph_.tasks(); ++a)
    for (uint32_t b = 0; b < a; ++b) {
      if (!together(a, b) || ancestors_[a][b] || ancestors_[b][a]) continue;
      const bool a_first = before_in_time(a, b), b_first = before_in_time(b, a);
      if (!a_first && !b_first) return false;
      if (a_first != b_first) order(a_first ? a : b, a_first ? b : a);
    }
  visits_ += graph_.tasks() * graph_.tasks() / 4;
  return true;
}

void TaskWindows::order(uint32_t first, uint32_t second) {
  changed_ = true;
  for (uint32_t b = 0; b < graph_.tasks(); ++b) {
    if (b != second && !ancestors_[b][second]) continue;
    for (uint32_t a = 0; a < graph_.tasks(); ++a)
      if (a == first || ancestors_[first][a]) ancestors_[b][a] = true;
  }
}

std::pair<uint32_t, uint32_t> TaskWindows::unordered() const {
  std::pair<uint32_t, uint32_t> found{0, 0};
  int64_t most = -1;
  for (uint32_t a = 0; a < graph_.tasks(); ++a)
    for (uint32_t b = 0; b < a; ++b) {
      if (fixed_[a] == kNoDevice || fixed_[a] != fixed_[b] || ancestors_[a][b] || ancestors_[b][a]) continue;
      const int64_t least = std::min(graph_.ns(a, fixed_[a]), graph_.ns(b, fixed_[b]));
      if (least > most) most = least, found = {a, b};
    }
  return found;
}

// What is before a task and must be on the device where the task is runs before it, one after the other; so behind it.
bool TaskWindows::queues() {
  for (uint32_t d = 0; d < graph_.devices(); ++d) {
    for (const bool back : {false, true}) {
      std::vector<int64_t>& times = back ? tail_ : head_;
      const auto order = by(times, d);  // as they were: what is raised meanwhile does not change the order
      for (const auto& entry : order) {
        const uint32_t j = entry.second;
        if (!can(j, d)) continue;
        int64_t done = 0;
        for (const auto& [time, i] : order)
          if ((back ? ancestors_[i][j] : ancestors_[j][i]) && (cluster_[i] == cluster_[j] || fixed_[i] == d) &&
              can(i, d))
            done = std::max(done, time) + graph_.ns(i, d);
        if (!raise(times, j, d, done)) return false;
      }
      visits_ += static_cast<int64_t>(order.size() * order.size());
    }
  }
  return true;
}

// Each cluster on each device, together with what is there already.
bool TaskWindows::loads() {
  for (uint32_t c = 0; c < graph_.tasks(); ++c)
    for (uint32_t d = 0; d < graph_.devices(); ++d)
      if (!members_[c].empty() && can(c, d) && !in_time(c, d) && !exclude(c, d)) return false;
  return true;
}

bool TaskWindows::in_time(uint32_t cluster, uint32_t device) {
  std::vector<QueuedTask> tasks;
  std::vector<uint32_t> there;
  for (uint32_t j = 0; j < graph_.tasks(); ++j)
    if (cluster_[j] == cluster || fixed_[j] == device) {
      if (!can(j, device)) continue;
      tasks.push_back({head(j, device), graph_.ns(j, device), tail(j, device)});
      there.push_back(j);
    }
  visits_ += graph_.tasks() / 4 + 4 * static_cast<int64_t>(tasks.size());
  return graph_.bytes_together(there) <= graph_.memory(device) && one_device_ns(tasks) <= within_ns_;
}

}  // namespace spmdx
