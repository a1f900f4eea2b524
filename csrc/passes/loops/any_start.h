// SPDX-License-Identifier: Apache-2.0
// Any start: which planned nodes do for every start what they do for one.
#pragma once
#include "graph/starts.h"

namespace spmdx {

// Whether the node, which has its start from `recorded`, does for any other start what this one does: the dim is whole
// on every device, or each device takes what it holds of it.
bool takes_any_start(const Graph& graph, const Node& node, const Node& recorded);

}  // namespace spmdx
