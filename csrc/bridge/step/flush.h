// SPDX-License-Identifier: Apache-2.0
// Flush: the end of the graph that is recorded, and what the program hears of steps that failed.
#pragma once
#include <ATen/core/Tensor.h>

#include <exception>

#include "runtime/step/plan.h"

namespace spmdx::bridge {

struct PendingPlan {
  PlanRef plan;       // null: nothing is pending
  size_t output = 0;  // the tensor's own among the outputs; as many as there are: it is none of them
};

// All: Program threads. Takes the recorder's lock. Gives up the GIL.

// Why a graph ends: the program says so, and perhaps waits for its end; it is too long; or somebody waits for a value
// that it computes.
enum class GraphEnd : uint8_t { asked, awaited, too_long, read };
// Ends the graph: every live root with a recorded value becomes an output. Returns when it is queued, or if somebody
// waits for it perhaps when it has run. Throws the error of a step that failed, as check_failed, or ShardingError of
// this graph.
void flush(GraphEnd why);
// Raises the error of a step that failed since the last call; tensors go back to what they held before it.
void check_failed();
// Waits until every step has ended that was submitted; then as check_failed.
void wait_for_steps();
// Drops what is pending and the error of a step that failed, which it returns if nobody has seen it: tensors go back to
// what was last computed, and those that never were hold an error. REQUIRES: no step runs.
std::exception_ptr undo_failed();
// Plans what is pending on the mesh of this tensor and runs nothing. REQUIRES: it is ours.
PendingPlan plan_pending(const at::Tensor& tensor);

}  // namespace spmdx::bridge
