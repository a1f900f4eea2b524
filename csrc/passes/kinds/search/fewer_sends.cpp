// SPDX-License-Identifier: Apache-2.0
// Fewer sends: a walk at random, of which no step is worse.
#include "passes/kinds/search/fewer_sends.h"

#include <algorithm>

#include "passes/kinds/search/group_moves.h"

namespace spmdx {
namespace {

constexpr int64_t kVisitsOfSends = 30000;   // tasks looked at, for each task that there is
constexpr int64_t kMostTasksCounted = 500;  // of these at most
constexpr int64_t kHidden = 2;              // one of so many transfers keeps a device busy, others run beside its work

class Walk {
 public:
  Walk(const TaskGraph& graph, const TaskSequences& start)
      : graph_(graph), groups_(graph), device_(start.device), times_(graph), received_(graph.devices()) {
    TaskTimes times;
    times.run(graph, start);
    order_ = times.by_start();
    ns_ = times.ns + sent(device_);
  }

  FewerSends run() {
    const int64_t most = std::min<int64_t>(graph_.tasks(), kMostTasksCounted) * kVisitsOfSends;
    for (int64_t visits = 0; visits < most; visits += cost()) {
      std::vector<uint32_t> device = device_;
      if (!change(device)) continue;
      const int64_t sends = sent(device);
      if (sends > ns_) continue;
      times_.run(graph_, device, order_);
      if (times_.ns + sends > ns_ || !times_.all_fit()) continue;
      ns_ = times_.ns + sends;
      device_ = std::move(device);
      times_.by_start(order_);
    }
    return {TaskSequences(graph_, device_, order_), ns_};
  }

 private:
  int64_t cost() const { return graph_.tasks() + static_cast<int64_t>(graph_.arcs()); }

  // A task goes anywhere, or where something lies that it reads, or that reads it; a group goes; or two change places.
  bool change(std::vector<uint32_t>& device) {
    const uint32_t task = groups_.any_task();
    std::vector<bool> moved;
    switch (groups_.next_random() % 4) {
      case 0:
        moved = groups_.move(device, order_);
        break;
      case 1:
        moved = groups_.exchange(task, groups_.any_task(), device);
        break;
      case 2:
        moved = groups_.send(task, groups_.any_device(), device);
        break;
      default:
        moved = groups_.send(task, other_end(task), device);
    }
    return !moved.empty() && device != device_;
  }
  uint32_t other_end(uint32_t task) {
    const auto &reads = graph_.reads(task), &readers = graph_.readers(task);
    if (reads.size() + readers.size() == 0) return groups_.any_device();
    const auto at = static_cast<size_t>(groups_.next_random()) % (reads.size() + readers.size());
    return device_[at < reads.size() ? reads[at].task : readers[at - reads.size()].task];
  }

  // For each device; to one that reads it, however often, a thing is sent once.
  int64_t sent(const std::vector<uint32_t>& device) {
    int64_t all = 0;
    for (uint32_t task = 0; task < graph_.tasks(); ++task) {
      std::ranges::fill(received_, 0);
      for (const TaskArc arc : graph_.readers(task)) {
        const uint32_t to = device[arc.task];
        if (to != device[task]) received_[to] = std::max(received_[to], graph_.transfer(arc, device[task], to));
      }
      for (const int64_t ns : received_) all += ns;
    }
    return all / (kHidden * graph_.devices());
  }

  const TaskGraph& graph_;
  GroupMoves groups_;
  std::vector<uint32_t> device_, order_;
  TimesInOrder times_;             // of what was tried last
  std::vector<int64_t> received_;  // by device
  int64_t ns_ = 0;
};

}  // namespace

FewerSends send_less(const TaskGraph& graph, const TaskSequences& found) { return Walk(graph, found).run(); }

}  // namespace spmdx
