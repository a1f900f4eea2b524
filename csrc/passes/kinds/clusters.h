// SPDX-License-Identifier: Apache-2.0
// Clusters: starts where tasks stay together that are joined by slow transfers.
#pragma once
#include <optional>

#include "passes/kinds/sequences.h"

namespace spmdx {

// A few, each with another bound on what is slow. `order`: tasks behind what they read.
std::vector<TaskSequences> clustered_schedules(const TaskGraph& graph, const std::vector<uint32_t>& order);

// By task: what slow transfers join stays together, as long as it is a small part of all work. Nothing where memory
// runs out.
std::optional<std::vector<uint32_t>> clustered_devices(const TaskGraph& graph);

}  // namespace spmdx
