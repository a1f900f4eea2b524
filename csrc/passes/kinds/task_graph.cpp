// SPDX-License-Identifier: Apache-2.0
#include "passes/kinds/task_graph.h"

#include <algorithm>
#include <map>
#include <string>

namespace spmdx {
namespace {

// Sums of times, weighed by what bounds weigh them with, are to fit 64 bits.
constexpr auto kLongest = int64_t{1} << 50;

// bytes · ps / 1000 without the overflow of the product.
int64_t transfer_ns(const Link& link, int64_t bytes) {
  internal_check(link.latency_ns >= 0 && link.picoseconds_per_byte >= 0, "a link with a negative time");
  if (bytes / 1000 > kLongest / std::max<int64_t>(1, link.picoseconds_per_byte)) return kLongest;
  return std::min(kLongest, link.latency_ns + bytes / 1000 * link.picoseconds_per_byte +
                                bytes % 1000 * link.picoseconds_per_byte / 1000);
}

void check_devices(const Devices& devices) {
  internal_check(!devices.memory.empty() && devices.links.size() == devices.memory.size(), "devices without links");
  for (const auto& row : devices.links)
    internal_check(row.size() == devices.memory.size(), "a device without a link to another one");
}

}  // namespace

TaskGraph::TaskGraph(const std::vector<Task>& tasks, const Devices& devices)
    : memory_(devices.memory), shared_bytes_(devices.shared), readers_(tasks.size()) {
  check_devices(devices);
  for (const Task& task : tasks) add_task(task);
  for (uint32_t j = 0; j < tasks.size(); ++j) {
    std::map<uint32_t, int64_t> bytes;  // a reader waits for the most that it reads of a task
    for (const TaskRead& read : tasks[j].reads) {
      internal_check(read.task < j && read.bytes >= 0, "a task that reads what comes later, or less than nothing");
      bytes[read.task] = std::max(bytes[read.task], read.bytes);
    }
    for (const auto& [task, most] : bytes) add_read(j, {task, most}, devices);
  }
  share();
  check_total();
}

// Parts of what tasks share, by how many do.
void TaskGraph::share() {
  std::vector<int64_t> by(shared_bytes_.size(), 0);
  for (const auto& values : shared_)
    for (const uint32_t value : values) ++by[value];
  least_bytes_ = bytes_;
  for (uint32_t j = 0; j < tasks(); ++j)
    for (const uint32_t value : shared_[j]) least_bytes_[j] += shared_bytes_[value] / by[value];
}

int64_t TaskGraph::bytes_alone(uint32_t task) const {
  int64_t sum = bytes_[task];
  for (const uint32_t value : shared_[task]) sum += shared_bytes_[value];
  return sum;
}

int64_t TaskGraph::bytes_together(const std::vector<uint32_t>& tasks) const {
  std::vector<bool> there(shared_bytes_.size(), false);
  int64_t sum = 0;
  for (const uint32_t j : tasks) {
    sum += bytes_[j];
    for (const uint32_t value : shared_[j])
      if (!there[value]) there[value] = true, sum += shared_bytes_[value];
  }
  return sum;
}

void TaskGraph::add_task(const Task& task) {
  const std::string index = std::to_string(reads_.size());
  internal_check(task.ns.size() == memory_.size() && task.bytes >= 0, "task " + index + " has no times, or no memory");
  for (const int64_t ns : task.ns) internal_check(ns >= 0, "task " + index + " takes a negative time");
  if (std::all_of(task.ns.begin(), task.ns.end(), [](int64_t ns) { return ns == kNever; }))
    throw ShardingError("no device can run task " + index + ", of " + std::to_string(task.ns.size()) +
                        ". Expected a device for every task. Add a device of a kind that runs it, or a rule by which "
                        "one of these kinds does.");
  ns_.insert(ns_.end(), task.ns.begin(), task.ns.end());
  for (const uint32_t value : task.shared) internal_check(value < shared_bytes_.size(), "a shared value without bytes");
  bytes_.push_back(task.bytes);
  shared_.push_back(task.shared);
  reads_.emplace_back();
}

void TaskGraph::add_read(uint32_t reader, TaskRead read, const Devices& devices) {
  const uint32_t table = arcs_++;
  for (uint32_t from = 0; from < this->devices(); ++from)
    for (uint32_t to = 0; to < this->devices(); ++to)
      transfers_.push_back(from == to ? 0 : transfer_ns(devices.links[from][to], read.bytes));
  reads_[reader].push_back({read.task, table});
  readers_[read.task].push_back({reader, table});
}

// All one after the other, each as slow as can be.
void TaskGraph::check_total() const {
  int64_t total = 0;
  const size_t per_arc = memory_.size() * memory_.size();
  const auto add = [&](int64_t ns) {
    if (ns >= kLongest - total)
      throw ShardingError("the tasks and their transfers take more than " + std::to_string(kLongest) +
                          " ns. Expected a step of less than 13 days. Write smaller times, in ns.");
    total += ns;
  };
  for (uint32_t j = 0; j < tasks(); ++j) {
    int64_t most = 0;
    for (uint32_t d = 0; d < devices(); ++d)
      if (runs(j, d)) most = std::max(most, ns(j, d));
    add(most);
  }
  for (size_t arc = 0; arc < arcs_; ++arc)
    add(*std::max_element(transfers_.begin() + arc * per_arc, transfers_.begin() + (arc + 1) * per_arc));
}

}  // namespace spmdx
