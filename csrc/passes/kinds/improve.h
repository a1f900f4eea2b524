// SPDX-License-Identifier: Apache-2.0
// Improve: a local search over devices and orders, by counts that do not depend on the machine.
#pragma once
#include "passes/kinds/sequences.h"

namespace spmdx {

// The best that is met on the way from each of the first few starts, the best of them first. Ends at once where it
// takes `least_ns`, below which nothing is.
TaskSequences improve(const TaskGraph& graph, const std::vector<TaskSequences>& starts, int64_t least_ns);

}  // namespace spmdx
