// SPDX-License-Identifier: Apache-2.0
// Energy: what must run between two times, against what devices can do between them.
#pragma once
#include "passes/kinds/windows.h"

namespace spmdx {

// Prices of a device's time. Work is shared out so that no other way is cheaper: if it still costs more than all time
// between two moments, there is too much of it (the dual of the linear programme that shares it out).
struct DevicePrices {
  std::vector<int64_t> time, memory;  // by device
};

class TaskEnergy {
 public:
  TaskEnergy(const TaskGraph& graph, const TaskWindows& windows) : graph_(graph), windows_(windows) {}

  // False where too much must run between some two times. Of those where tasks may start and must end so many are
  // looked at, and at most.
  bool holds(size_t most_times);
  int64_t visits() const { return visits_; }

 private:
  std::vector<int64_t> starts(size_t most) const;
  std::vector<int64_t> ends(size_t most) const;
  void measure(int64_t begin, int64_t end);
  bool cheap_enough(int64_t length, int steps);
  void scale_bytes();

  const TaskGraph& graph_;
  const TaskWindows& windows_;
  // What each cluster uses and what there is of it, time or bytes, in units in which both are alike.
  struct Used {
    std::vector<int64_t> time, memory;  // by device
    int64_t cost = 0;                   // of all
  };
  Used used_at(const DevicePrices& prices) const;
  int64_t worth(const DevicePrices& prices, int64_t length) const;
  void change(DevicePrices& prices, const Used& used, int64_t length, int step) const;

  std::vector<int64_t> work_;   // by cluster that must run, and device; kNever: it cannot run there
  std::vector<int64_t> bytes_;  // by cluster that must run
  std::vector<int64_t> task_bytes_, memory_;
  DevicePrices prices_;  // of the time before, the best found
  int64_t visits_ = 0;
};

}  // namespace spmdx
