// SPDX-License-Identifier: Apache-2.0
// Free starts: what of a plan depends on where the parts begin that its program reads and writes, and what does not.
#pragma once
#include "graph/starts.h"

namespace spmdx {

// First of all: each node that has a start is where it has its start from. Passes see the starts as they are.
void note_starts(Graph& graph);

// After the passes: a start becomes a parameter of `compiled`, numbered behind those of `traced`, where every node that
// has it takes any value alike: the dim is whole on every device, or each device takes what it holds of it. All other
// starts, and what the passes took for equal, are given. REQUIRES: `compiled` was made of `traced` by the passes.
StartsOfPlan free_starts(const Graph& traced, Graph& compiled);

}  // namespace spmdx
