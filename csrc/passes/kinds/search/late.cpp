// SPDX-License-Identifier: Apache-2.0
// Late acceptance hill climbing (Burke and Bykov 2017, doi:10.1016/j.ejor.2016.07.012) over devices and orders.
#include "passes/kinds/search/late.h"

#include <algorithm>

namespace spmdx {
namespace {

constexpr size_t kLate = 1000;     // steps ago
constexpr int64_t kEnd = 16;       // what the makespan counts, in means of when devices are done
constexpr size_t kAimSteps = 500;  // between looks at what is certain of shorter ones

class Late {
 public:
  Late(const TaskGraph& graph, const TaskSequences& start, GroupMoves& groups)
      : graph_(graph), groups_(groups), device_(start.device), best_(start), times_(graph) {
    TaskTimes times;
    times.run(graph, start);
    best_ns_ = times.ns;
    order_ = times.by_start();
    times_.run(graph, device_, order_);
    int64_t bytes = 1;
    for (uint32_t j = 0; j < graph.tasks(); ++j) bytes += graph.least_bytes(j) / graph.devices();
    price_ = kEnd * best_ns_ / bytes;
    value_ = value();
    late_.assign(kLate, value_);
  }

  TaskSequences run(int64_t visits) {
    for (size_t step = 0; visits_ < visits; ++step) {
      if (step % kAimSteps == 0) {
        const int64_t seen = groups_.visits();
        groups_.aim_below(best_ns_, visits_ + seen);
        if (groups_.nothing_below()) break;
        visits_ += groups_.visits() - seen;
      }
      ++visits_;
      std::vector<uint32_t> device = device_, order = order_;
      if (!change(device, order)) continue;
      times_.run(graph_, device, order);
      visits_ += graph_.tasks() + static_cast<int64_t>(graph_.arcs());
      take(std::move(device), std::move(order), late_[step % kLate]);
    }
    return best_;
  }

 private:
  // One of many changes. False where nothing has changed.
  bool change(std::vector<uint32_t>& device, std::vector<uint32_t>& order) {
    const int64_t kind = groups_.next_random() % 16;
    if (kind >= 12 && kind < 15) return reorder(order);
    std::vector<bool> moved;
    if (kind < 8) {
      const uint32_t task = groups_.any_task(), to = groups_.any_device();
      moved = groups_.send(task, to, device);
    } else if (kind < 12) {
      const uint32_t a = groups_.any_task(), b = groups_.any_task();
      moved = groups_.exchange(a, b, device);
    } else {
      moved = groups_.move(device, order);
      visits_ += graph_.tasks();
    }
    if (moved.empty()) return false;
    groups_.make_room(device, moved);
    return device != device_;
  }

  // One task goes to any place between what it reads and its readers.
  bool reorder(std::vector<uint32_t>& order) {
    const size_t at = groups_.any_task();
    size_t low = 0, high = order.size();
    for (const TaskArc arc : graph_.reads(order[at]))
      low = std::max<size_t>(low, std::find(order.begin(), order.end(), arc.task) - order.begin() + 1);
    for (const TaskArc arc : graph_.readers(order[at]))
      high = std::min<size_t>(high, std::find(order.begin(), order.end(), arc.task) - order.begin());
    const size_t to = low + groups_.next_random() % (high - low);
    const auto begin = order.begin();
    if (to < at)
      std::rotate(begin + to, begin + at, begin + at + 1);
    else
      std::rotate(begin + at, begin + at + 1, begin + to + 1);
    return to != at;
  }

  // The makespan first, then when devices are done, and memory that is lacking at a price.
  int64_t value() const {
    int64_t sum = 0;
    for (uint32_t d = 0; d < graph_.devices(); ++d) sum += times_.done[d];
    return times_.ns * kEnd + sum / graph_.devices() + times_.room.lacks() * price_;
  }
  void take(std::vector<uint32_t>&& device, std::vector<uint32_t>&& order, int64_t& late) {
    const int64_t found = value();
    if (found <= value_ || found <= late) {
      value_ = found;
      device_ = std::move(device);
      order_ = std::move(order);
      times_.by_start(order_);
      if (times_.ns < best_ns_ && times_.all_fit()) best_ns_ = times_.ns, best_.assign(graph_, device_, order_);
    }
    late = std::min(late, value_);
  }
  const TaskGraph& graph_;
  GroupMoves& groups_;
  std::vector<uint32_t> device_, order_;
  TaskSequences best_;
  TimesInOrder times_;  // of what was tried last
  int64_t best_ns_ = 0, value_ = 0, price_ = 0, visits_ = 0;
  std::vector<int64_t> late_;
};

}  // namespace

TaskSequences accept_late(const TaskGraph& graph, const TaskSequences& start, GroupMoves& groups, int64_t visits) {
  return Late(graph, start, groups).run(visits);
}

}  // namespace spmdx
