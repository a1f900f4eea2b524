// SPDX-License-Identifier: Apache-2.0
// Exact: the shortest makespan of few tasks, by branch and bound.
#pragma once
#include "passes/kinds/sequences.h"

namespace spmdx {

constexpr size_t kMostExact = 10;  // tasks whose shortest assignment is found

// The shortest of all, where `start` is not yet. A device is chosen for one task after the other; the order on each
// device then, once all devices are known. Takes time exponential in the tasks.
TaskSequences shortest(const TaskGraph& graph, const TaskSequences& start);

}  // namespace spmdx
