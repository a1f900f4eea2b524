// SPDX-License-Identifier: Apache-2.0
// Memory fit: what takes most first, where most is left; moves and exchanges; then a search in depth.
#include "passes/kinds/memory_fit.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace spmdx {
namespace {

constexpr int64_t kPacked = 200'000;  // tasks put on devices in the search in depth

class MemoryFit {
 public:
  explicit MemoryFit(const TaskGraph& graph) : graph_(graph), device_(graph.tasks()), order_(graph.tasks()) {
    for (uint32_t d = 0; d < graph.devices(); ++d) room_.push_back(graph.memory(d));
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](uint32_t a, uint32_t b) { return graph.bytes(a) > graph.bytes(b); });
  }

  std::vector<uint32_t> run() {
    for (const uint32_t task : order_) put(task, roomiest(task));
    while (lacks() > 0 && improve()) {
    }
    if (lacks() == 0) return device_;
    const auto nearest = room_;
    for (uint32_t d = 0; d < graph_.devices(); ++d) room_[d] = graph_.memory(d);
    if (pack(0)) return device_;
    const auto fullest = std::min_element(nearest.begin(), nearest.end());
    throw TaskMemoryError(static_cast<uint32_t>(fullest - nearest.begin()), -*fullest);
  }

 private:
  void put(uint32_t task, uint32_t device) {
    device_[task] = device;
    room_[device] -= graph_.bytes(task);
  }
  uint32_t roomiest(uint32_t task) const {
    uint32_t best = kNoDevice;
    for (uint32_t d = 0; d < graph_.devices(); ++d)
      if (graph_.runs(task, d) && (best == kNoDevice || room_[d] > room_[best])) best = d;
    return best;
  }
  int64_t lacks() const {
    int64_t sum = 0;
    for (const int64_t room : room_) sum += std::max<int64_t>(0, -room);
    return sum;
  }

  // What is lacking in all if `bytes` more lie on `to` and fewer on `from`.
  int64_t change(uint32_t from, uint32_t to, int64_t bytes) const {
    const auto lack = [](int64_t room) { return std::max<int64_t>(0, -room); };
    return lack(room_[from] + bytes) + lack(room_[to] - bytes) - lack(room_[from]) - lack(room_[to]);
  }
  void move(uint32_t task, uint32_t to) {
    room_[device_[task]] += graph_.bytes(task);
    put(task, to);
  }
  // The first task that moves, or changes places with another one, so that less is lacking.
  bool improve() {
    for (uint32_t task = 0; task < graph_.tasks(); ++task)
      if (room_[device_[task]] < 0 && (moves(task) || exchanges(task))) return true;
    return false;
  }
  bool moves(uint32_t task) {
    for (uint32_t d = 0; d < graph_.devices(); ++d)
      if (graph_.runs(task, d) && d != device_[task] && change(device_[task], d, graph_.bytes(task)) < 0)
        return move(task, d), true;
    return false;
  }
  bool exchanges(uint32_t task) {
    for (uint32_t other = 0; other < graph_.tasks(); ++other) {
      const uint32_t here = device_[task], there = device_[other];
      if (here == there || !graph_.runs(task, there) || !graph_.runs(other, here)) continue;
      if (change(here, there, graph_.bytes(task) - graph_.bytes(other)) >= 0) continue;
      move(task, there);
      move(other, here);
      return true;
    }
    return false;
  }

  // The tasks from place `at` of the order on, in the memory that is left.
  bool pack(size_t at) {
    if (at == order_.size()) return true;
    const uint32_t task = order_[at];
    for (uint32_t d = 0; d < graph_.devices(); ++d) {
      if (!graph_.runs(task, d) || graph_.bytes(task) > room_[d]) continue;
      if (++packed_ > kPacked) return false;
      put(task, d);
      if (pack(at + 1)) return true;
      room_[d] += graph_.bytes(task);
    }
    return false;
  }

  const TaskGraph& graph_;
  std::vector<uint32_t> device_, order_;  // what takes most first
  std::vector<int64_t> room_;             // by device; negative: bytes that it is short of
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
