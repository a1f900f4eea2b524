// SPDX-License-Identifier: Apache-2.0
// Clusters: starts where tasks stay together that are joined by slow transfers.
#pragma once
#include "passes/kinds/sequences.h"

namespace spmdx {

// A few, each with another bound on what is slow. `order`: tasks behind what they read.
std::vector<TaskSequences> clustered_schedules(const TaskGraph& graph, const std::vector<uint32_t>& order);

}  // namespace spmdx
