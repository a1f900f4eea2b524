// SPDX-License-Identifier: Apache-2.0
// Weights: a bound by loads and paths at once: a mean of how long devices work and how long ways through tasks are, of
// which no assignment has a smaller one, is not above the makespan.
#pragma once
#include "passes/kinds/windows.h"

namespace spmdx {

// Weights are sought in rounds, as in a game (fictitious play, Robinson 1951): an assignment that is best against all
// weights so far is answered by the device that works longest, or the longest way, in the mean of all assignments so
// far.
class TaskWeights {
 public:
  TaskWeights(const TaskGraph& graph, const TaskWindows& windows);

  // Of what the windows leave, the bound after so many rounds, or as soon as it is above `enough`.
  int64_t bound(int rounds, int64_t enough);
  int64_t visits() const { return visits_; }

 private:
  int64_t best_answer();
  void count_answer();
  void weigh();
  int64_t longest_way();

  const TaskGraph& graph_;
  const TaskWindows& windows_;
  std::vector<int64_t> of_device_, of_task_, of_arc_, into_;  // weights; into_: of all arcs to a task
  std::vector<int64_t> cost_;                                 // by task and device, with all that follows it
  std::vector<uint32_t> answer_;                              // by task
  std::vector<int64_t> load_, ns_, transfer_;                 // sums over all answers: by device, task, arc
  std::vector<int64_t> way_;                                  // by task: the longest way from its start
  int64_t visits_ = 0;
};

}  // namespace spmdx
