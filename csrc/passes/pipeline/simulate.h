// SPDX-License-Identifier: Apache-2.0
// Simulation of a schedule: when its actions run, how long ranks are idle, how many activations they hold.
#pragma once
#include <vector>

#include "passes/pipeline/schedule.h"

namespace spmdx {

// How long the parts of a stage take for one microbatch, in any unit. A full backward takes both gradients' times.
struct StageTimes {
  double forward = 1, input_gradient = 1, weight_gradient = 1;
};

struct TimedAction {
  int32_t rank = 0;
  Action action;
  double start = 0, end = 0;
};

struct Simulation {
  std::vector<TimedAction> actions;  // by start and then by rank: what an action waits for precedes it
  double total = 0;                  // from the first start to the last end
  std::vector<double> idle;          // of each rank in that time
  double bubble = 0;                 // what all ranks are idle ÷ what all of them work
  // The most activations of a microbatch and a stage that a rank holds at a time: until the backward is done, and those
  // that have yet to give the gradient of their input. They are the same where no backward is in halves.
  std::vector<int64_t> in_flight, in_flight_to_input;
};

// `times` has an entry for each stage; `send` passes from the end of an action to its use on another rank, and keeps
// neither of them from other work. Sums of whole numbers are exact. Throws ShardingError for a schedule that cannot run
// and for times that are negative, not finite, or of another number of stages.
Simulation simulate(const Schedule& schedule, const std::vector<StageTimes>& times, double send = 0);

}  // namespace spmdx
