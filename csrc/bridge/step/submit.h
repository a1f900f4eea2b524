// SPDX-License-Identifier: Apache-2.0
// Submit: finished graphs are planned and go to the engine.
#pragma once
#include <vector>

#include "bridge/recorder/recorder_state.h"
#include "runtime/step/plan.h"

namespace spmdx::bridge {

// A finished graph on its way to the engine.
struct PlannedPart {
  PlanRef plan;  // null: the graph has no outputs
  std::vector<DataRef> data_of_inputs, outputs;
  std::vector<RootRef> owners;  // the roots of the outputs, in the same order
  std::vector<int64_t> starts;  // where the parts begin that the graph reads and writes
};

// All: Holds the recorder's lock. Gives up the GIL.

// The plan of a graph. Throws ShardingError, led by the user's line.
PlanRef plan_of(const Graph& graph, PlanFor purpose);
// Plans a finished graph. Throws ShardingError; nothing has changed then.
PlannedPart planned(const Graph& done, std::vector<DataRef> data_of_inputs, std::vector<RootRef> owners);
// Queues what was planned; the roots hold the results from now on. Nothing fails here. `awaited`: the caller waits for
// a result next, so a brief step may run at once on this thread.
void queue_parts(RecorderState& state, std::vector<PlannedPart> parts, bool awaited = false);
// Finishes, plans and sends what is recorded. Returns whether there is annotated data that moves in another step.
// Throws ShardingError; nothing is queued then.
bool submit(RecorderState& state, bool awaited);

}  // namespace spmdx::bridge
