// SPDX-License-Identifier: Apache-2.0
#include "passes/random_tasks.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

namespace spmdx::test {
namespace {

class Drawing {
 public:
  Drawing(unsigned seed, uint32_t tasks, uint32_t most_devices)
      : random_(seed), shape_(seed % 5), devices_(2 + below(most_devices - 1)) {
    drawn_.shape = std::array{"chains", "layers", "forks and joins", "any graph", "no reads"}[shape_];
    for (uint32_t d = 0; d < devices_; ++d) speed_.push_back(1 + below(4));
    never_ = below(3) == 0;
    for (uint32_t j = 0; j < tasks; ++j) add_task(j);
    for (uint32_t j = 1; j < tasks && shape_ != 4; ++j) add_reads(j);
    add_links();
    add_memory();
  }
  DrawnTasks take() { return std::move(drawn_); }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  // Work of some size, at the speed of the device, half to twice as fast by its kind.
  void add_task(uint32_t index) {
    Task task;
    const int64_t work = 1000 * (1 + below(40));
    for (uint32_t d = 0; d < devices_; ++d) task.ns.push_back(work * (2 + below(7)) / (4 * speed_[d]));
    if (never_ && below(3) == 0) {
      const uint32_t able = below(devices_);
      for (uint32_t d = 0; d < devices_; ++d)
        if (d != able && below(2)) task.ns[d] = kNever;
    }
    task.bytes = 100 * below(50);
    if (index % 7 == 6) task.bytes = 0;
    drawn_.tasks.push_back(std::move(task));
  }

  void read(uint32_t reader, uint32_t task) { drawn_.tasks[reader].reads.push_back({task, 64 * (1 + below(64))}); }
  void add_reads(uint32_t j) {
    const uint32_t width = 2 + below(3);
    if (shape_ == 0) {
      if (j >= 3) read(j, j - 3);  // three of them
    } else if (shape_ == 1) {
      const uint32_t layer = j / 4;
      for (uint32_t i = layer == 0 ? j : (layer - 1) * 4; i < layer * 4; ++i)
        if (below(2)) read(j, i);
    } else if (shape_ == 2) {
      const uint32_t in_group = j % 5;  // one, three that read it, one that reads these
      if (in_group == 0) return read(j, j - 1);
      if (in_group < 4) return read(j, j - in_group);
      for (uint32_t i = 1; i < 4; ++i) read(j, j - i);
    } else {
      for (uint32_t i = 0; i < width - 1; ++i) read(j, j - 1 - below(std::min(j, 8U)));
    }
  }

  void add_links() {
    const int64_t slow = std::array<int64_t, 4>{1, 100, 2000, 15000}[below(4)];
    drawn_.devices.links.assign(devices_, std::vector<Link>(devices_));
    for (auto& row : drawn_.devices.links)
      for (Link& link : row) link = {slow * below(3), slow * (1 + below(3))};
  }
  void add_memory() {
    int64_t sum = 0, most = 0;
    for (const Task& task : drawn_.tasks) sum += task.bytes, most = std::max(most, task.bytes);
    const bool little = below(3) == 0;
    for (uint32_t d = 0; d < devices_; ++d)
      drawn_.devices.memory.push_back(little ? most + sum * (5 + below(4)) / (5 * devices_) : sum);
  }

  std::mt19937 random_;
  uint32_t shape_, devices_;
  std::vector<int64_t> speed_;
  bool never_ = false;
  DrawnTasks drawn_;
};

int64_t transfer(const Devices& devices, const TaskRead& read, uint32_t from, uint32_t to) {
  if (from == to) return 0;
  const Link& link = devices.links[from][to];
  return link.latency_ns + read.bytes * link.picoseconds_per_byte / 1000;
}

// What a task takes on a device beside the tasks that are there already; `there`: by task.
template <class There>
int64_t needed(const std::vector<Task>& tasks, const Devices& devices, uint32_t task, const There& there) {
  int64_t bytes = tasks[task].bytes;
  for (const uint32_t value : tasks[task].shared) {
    bool lies_there = false;
    for (uint32_t j = 0; j < tasks.size(); ++j)
      lies_there |= there(j) && std::ranges::find(tasks[j].shared, value) != tasks[j].shared.end();
    bytes += lies_there ? 0 : devices.shared[value];
  }
  return bytes;
}

// All ways to append a task, on any device, behind what its device has.
class Force {
 public:
  Force(const std::vector<Task>& tasks, const Devices& devices)
      : tasks_(tasks),
        devices_(devices),
        free_(devices.memory.size(), 0),
        room_(devices.memory),
        device_(tasks.size()),
        end_(tasks.size(), -1) {}
  std::optional<int64_t> run() {
    append(0, 0, 0);
    if (best_ == kNever) return std::nullopt;
    return best_;
  }

 private:
  // Every schedule is met in the order of its starts.
  void append(size_t count, int64_t last_start, int64_t ns) {
    if (ns >= best_) return;
    if (count == tasks_.size()) {
      best_ = ns;
      return;
    }
    for (uint32_t j = 0; j < tasks_.size(); ++j) {
      const Task& task = tasks_[j];
      if (end_[j] >= 0 || std::any_of(task.reads.begin(), task.reads.end(), [&](auto& r) { return end_[r.task] < 0; }))
        continue;
      for (uint32_t d = 0; d < free_.size(); ++d) {
        if (task.ns[d] == kNever) continue;
        const int64_t bytes =
            needed(tasks_, devices_, j, [&](uint32_t other) { return end_[other] >= 0 && device_[other] == d; });
        if (bytes > room_[d]) continue;
        int64_t start = free_[d];
        for (const TaskRead& r : task.reads)
          start = std::max(start, end_[r.task] + transfer(devices_, r, device_[r.task], d));
        if (start < last_start) continue;
        const int64_t free = std::exchange(free_[d], start + task.ns[d]);
        device_[j] = d;
        end_[j] = free_[d];
        room_[d] -= bytes;
        append(count + 1, start, std::max(ns, end_[j]));
        room_[d] += bytes;
        end_[j] = -1;
        free_[d] = free;
      }
    }
  }

  const std::vector<Task>& tasks_;
  const Devices& devices_;
  std::vector<int64_t> free_, room_;
  std::vector<uint32_t> device_;
  std::vector<int64_t> end_;  // negative: not yet run
  int64_t best_ = kNever;
};

}  // namespace

DrawnTasks draw_tasks(unsigned seed, uint32_t tasks, uint32_t most_devices) {
  return Drawing(seed, tasks, most_devices).take();
}

DrawnTasks draw_sharing_tasks(unsigned seed, uint32_t tasks, uint32_t most_devices) {
  DrawnTasks drawn = draw_tasks(seed, tasks, most_devices);
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<int64_t>(random() % n); };
  int64_t sum = 0, most = 0;
  for (uint32_t value = 0; value < 1 + tasks / 2; ++value) {
    drawn.devices.shared.push_back(100 * below(100));
    sum += drawn.devices.shared.back();
    for (Task& task : drawn.tasks)
      if (below(3) == 0) task.shared.push_back(value);
  }
  for (Task& task : drawn.tasks) {
    task.bytes /= 4;
    int64_t alone = task.bytes;
    for (const uint32_t value : task.shared) alone += drawn.devices.shared[value];
    most = std::max(most, alone);
    sum += task.bytes;
  }
  for (int64_t& memory : drawn.devices.memory) memory = std::max(most, sum * (3 + below(7)) / 10);
  return drawn;
}

std::string wrong_with(const TaskAssignment& found, const std::vector<Task>& tasks, const Devices& devices) {
  if (found.device.size() != tasks.size() || found.order.size() != tasks.size()) return "tasks are missing";
  std::vector<int64_t> room = devices.memory, free(room.size(), 0);
  std::vector<bool> done(tasks.size(), false);
  int64_t ns = 0, last = 0;
  for (const uint32_t j : found.order) {
    const Task& task = tasks[j];
    const uint32_t d = found.device[j];
    const std::string name = "task " + std::to_string(j);
    if (done[j]) return name + " runs twice";
    if (task.ns[d] == kNever) return name + " is on a device that cannot run it";
    if (found.start[j] < last || found.start[j] < free[d]) return name + " starts out of order, or over another one";
    for (const TaskRead& read : task.reads)
      if (!done[read.task] ||
          found.start[j] < found.end[read.task] + transfer(devices, read, found.device[read.task], d))
        return name + " does not wait for task " + std::to_string(read.task);
    if (found.end[j] != found.start[j] + task.ns[d]) return name + " takes another time";
    const int64_t bytes =
        needed(tasks, devices, j, [&](uint32_t other) { return done[other] && found.device[other] == d; });
    if ((room[d] -= bytes) < 0) return name + " does not fit the memory";
    last = found.start[j];
    free[d] = found.end[j];
    ns = std::max(ns, found.end[j]);
    done[j] = true;
  }
  return ns == found.ns ? "" : "the makespan is another one";
}

std::optional<int64_t> shortest_by_force(const std::vector<Task>& tasks, const Devices& devices) {
  return Force(tasks, devices).run();
}

}  // namespace spmdx::test
