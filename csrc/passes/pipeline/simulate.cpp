// SPDX-License-Identifier: Apache-2.0
// Simulates a schedule by its replay with the times of stages.
#include "passes/pipeline/simulate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "passes/pipeline/check.h"
#include "passes/pipeline/replay.h"

namespace spmdx {
namespace {

void require_time(double time, const char* what) {
  const char* flaw = time < 0           ? "negative"
                     : std::isnan(time) ? "not a number"
                     : std::isinf(time) ? "infinite"
                                        : nullptr;
  if (flaw)
    throw ShardingError("the time of " + std::string(what) + " is " + flaw +
                        ". Expected a finite number that is at least 0. Write 1.0.");
}

void require_times(const std::vector<StageTimes>& times, double send, int64_t num_stages) {
  if (static_cast<int64_t>(times.size()) != num_stages)
    throw ShardingError("there are times of " + std::to_string(times.size()) + " stages. Expected those of " +
                        std::to_string(num_stages) + ". Give one for each stage, or one number for all.");
  for (const StageTimes& stage : times) {
    require_time(stage.forward, "a forward");
    require_time(stage.input_gradient, "an input gradient");
    require_time(stage.weight_gradient, "a weight gradient");
  }
  require_time(send, "a send");
}

double duration(const StageTimes& stage, ActionKind kind) {
  switch (kind) {
    case ActionKind::F:
      return stage.forward;
    case ActionKind::I:
      return stage.input_gradient;
    case ActionKind::W:
      return stage.weight_gradient;
    case ActionKind::B:
      return stage.input_gradient + stage.weight_gradient;
  }
  throw InternalError("an action of no kind");
}

// The most forwards that are not yet followed by an action of `ending` in a rank's order.
int64_t most_in_flight(const std::vector<Action>& actions, ActionKind ending) {
  int64_t held = 0, most = 0;
  for (const Action& action : actions) {
    if (action.kind == ActionKind::F) most = std::max(most, ++held);
    if (action.kind == ActionKind::B || action.kind == ending) --held;
  }
  return most;
}

}  // namespace

Simulation simulate(const Schedule& schedule, const std::vector<StageTimes>& times, double send) {
  const Dependencies all(schedule);
  require_times(times, send, all.num_stages);
  const auto time = [&](const PlacedAction& placed) { return duration(times[all.stage(placed)], placed.action.kind); };
  const Replay run = replay(all, time, send);
  require_complete(all, run);

  Simulation result;
  result.total = *std::ranges::max_element(run.end);
  result.idle.assign(all.num_ranks(), result.total);
  result.actions.reserve(run.order.size());
  double work = 0, idle = 0;
  for (const ActionId id : run.order) {
    const PlacedAction& placed = all.actions[id];
    result.actions.push_back({placed.rank, placed.action, run.start[id], run.end[id]});
    result.idle[placed.rank] -= time(placed);
    work += time(placed);
  }
  for (const double of_rank : result.idle) idle += of_rank;
  result.bubble = work > 0 ? idle / work : 0;
  for (const std::vector<Action>& actions : schedule.ranks) {
    result.in_flight.push_back(most_in_flight(actions, ActionKind::W));
    result.in_flight_to_input.push_back(most_in_flight(actions, ActionKind::I));
  }
  return result;
}

}  // namespace spmdx
