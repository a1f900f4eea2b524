// SPDX-License-Identifier: Apache-2.0
// Search: a choice for every node of a propagated graph, of little total cost.
#pragma once
#include "passes/assignment.h"

namespace spmdx {

// Decides every node once, in program order, by what is known so far.
void choose_greedily(Assignment& assignment);

// Changes decisions, one node or a wave of neighbours at a time, as long as the total falls. So the result is never
// worse than what it started from.
void improve(Assignment& assignment);

}  // namespace spmdx
