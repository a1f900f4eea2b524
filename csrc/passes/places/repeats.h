// SPDX-License-Identifier: Apache-2.0
// Repeats: which nodes compute anew what others have computed, as checkpoints have it.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// By node of what checkpoints compute anew, and of casts between: the first one of an equal call whose operands are the
// same, or repeat each other likewise, or are numbers that are uploaded; of others kNone.
std::vector<NodeId> repeats(const Graph& graph);

}  // namespace spmdx
