// SPDX-License-Identifier: Apache-2.0
// Memory fit: devices whose memory holds the tasks, whatever time that takes.
#pragma once
#include "passes/kinds/task_graph.h"

namespace spmdx {

// A device for every task. Throws TaskMemoryError where none is found: up to some 20 tasks there is none then.
std::vector<uint32_t> fit_memory(const TaskGraph& graph);

}  // namespace spmdx
