// SPDX-License-Identifier: Apache-2.0
// Improve: a search over devices and orders, by counts that do not depend on the machine.
#pragma once
#include "passes/kinds/sequences.h"

namespace spmdx {

// The best that is met on ways from the first of these starts, and from mixtures of what is met on these.
TaskSequences improve(const TaskGraph& graph, const std::vector<TaskSequences>& starts);

}  // namespace spmdx
