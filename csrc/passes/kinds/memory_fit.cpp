// SPDX-License-Identifier: Apache-2.0
// Memory fit: what takes most first, where most is left; moves and exchanges; then a search in depth.
#include "passes/kinds/memory_fit.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>

#include "passes/kinds/task_room.h"

namespace spmdx {
namespace {

constexpr int64_t kPacked = 200'000;  // tasks put on devices in the search in depth

class MemoryFit {
 public:
  explicit MemoryFit(const TaskGraph& graph)
      : graph_(graph), device_(graph.tasks()), order_(graph.tasks()), room_(graph) {
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](uint32_t a, uint32_t b) { return graph.bytes_alone(a) > graph.bytes_alone(b); });
  }

  std::vector<uint32_t> run() {
    for (const uint32_t task : order_) put(task, roomiest(task));
    while (room_.lacks() > 0 && improve()) {
    }
    if (room_.lacks() == 0) return device_;
    const TaskRoom nearest = room_;
    room_.reset(graph_);
    if (pack(0)) return device_;
    throw TaskMemoryError(nearest.fullest(), -nearest.left()[nearest.fullest()]);
  }

 private:
  void put(uint32_t task, uint32_t device) {
    device_[task] = device;
    room_.put(graph_, task, device);
  }
  // Where it fits, where least is added, and where most is left then; in this order.
  uint32_t roomiest(uint32_t task) const {
    uint32_t best = kNoDevice;
    std::tuple<bool, int64_t, int64_t> most;
    for (uint32_t d = 0; d < graph_.devices(); ++d) {
      if (!graph_.runs(task, d)) continue;
      const std::tuple<bool, int64_t, int64_t> here{room_.holds(graph_, task, d), -room_.needs(graph_, task, d),
                                                    room_.left()[d]};
      if (best == kNoDevice || here > most) best = d, most = here;
    }
    return best;
  }

  void move(uint32_t task, uint32_t to) {
    room_.move(graph_, task, device_[task], to);
    device_[task] = to;
  }
  // The first task that moves, or changes places with another one, so that less is lacking.
  bool improve() {
    for (uint32_t task = 0; task < graph_.tasks(); ++task)
      if (room_.left()[device_[task]] < 0 && (moves(task) || exchanges(task))) return true;
    return false;
  }
  bool moves(uint32_t task) {
    const uint32_t here = device_[task];
    const int64_t before = room_.lacks();
    for (uint32_t d = 0; d < graph_.devices(); ++d) {
      if (!graph_.runs(task, d) || d == here) continue;
      move(task, d);
      if (room_.lacks() < before) return true;
      move(task, here);
    }
    return false;
  }
  bool exchanges(uint32_t task) {
    const int64_t before = room_.lacks();
    for (uint32_t other = 0; other < graph_.tasks(); ++other) {
      const uint32_t here = device_[task], there = device_[other];
      if (here == there || !graph_.runs(task, there) || !graph_.runs(other, here)) continue;
      move(task, there);
      move(other, here);
      if (room_.lacks() < before) return true;
      move(task, here);
      move(other, there);
    }
    return false;
  }

  // The tasks from place `at` of the order on, in the memory that is left.
  bool pack(size_t at) {
    if (at == order_.size()) return true;
    const uint32_t task = order_[at];
    for (uint32_t d = 0; d < graph_.devices(); ++d) {
      if (!graph_.runs(task, d) || !room_.holds(graph_, task, d)) continue;
      if (++packed_ > kPacked) return false;
      put(task, d);
      if (pack(at + 1)) return true;
      room_.take(graph_, task, d);
    }
    return false;
  }

  const TaskGraph& graph_;
  std::vector<uint32_t> device_, order_;  // what takes most first
  TaskRoom room_;
  int64_t packed_ = 0;
};

}  // namespace

TaskMemoryError::TaskMemoryError(uint32_t device, int64_t bytes_short)
    : ShardingError("the tasks do not fit the memory of the devices: device " + std::to_string(device) + " is " +
                    std::to_string(bytes_short) +
                    " bytes short. Expected memory for what every task keeps, on a device that can run it, and of the "
                    "assignments that were tried this one comes nearest. Add devices or memory, or cut the parameters "
                    "along an axis."),
      device(device),
      bytes_short(bytes_short) {}

std::vector<uint32_t> fit_memory(const TaskGraph& graph) { return MemoryFit(graph).run(); }

}  // namespace spmdx
