// SPDX-License-Identifier: Apache-2.0
// Least: a time below which no assignment is done.
#pragma once
#include "passes/kinds/tasks.h"

namespace spmdx {

// No assignment has a shorter makespan. Of up to 10 tasks it is the shortest itself. Throws as assign_tasks does.
int64_t least_makespan_ns(const std::vector<Task>& tasks, const Devices& devices);

}  // namespace spmdx
