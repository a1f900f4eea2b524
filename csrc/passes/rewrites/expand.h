// SPDX-License-Identifier: Apache-2.0
// Replaces composite ops by the simpler ones their rules expand them to.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// Expands the nodes marked true. Values are renumbered; inputs, outputs, constraints and sources are kept.
void expand(Graph& graph, const std::vector<bool>& nodes);

}  // namespace spmdx
