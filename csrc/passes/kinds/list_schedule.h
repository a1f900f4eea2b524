// SPDX-License-Identifier: Apache-2.0
// List scheduling: the task with the longest way to the end comes next, on the device that has it done soonest.
#pragma once
#include "passes/kinds/sequences.h"

namespace spmdx {

// Starts for a search, the shortest first; one at least. `fit` holds devices with memory for all tasks.
std::vector<TaskSequences> list_schedules(const TaskGraph& graph, const std::vector<uint32_t>& fit);

// By task and device (task · devices + device): from the end of a task on a device to the end of all, at least, where
// every reader takes the device that is best for it.
std::vector<int64_t> least_tails(const TaskGraph& graph);
// The same from the beginning of all to the start of a task.
std::vector<int64_t> least_heads(const TaskGraph& graph);

}  // namespace spmdx
