// SPDX-License-Identifier: Apache-2.0
// Search: a choice for every node of a propagated graph, of little total cost.
#pragma once
#include <memory>

#include "passes/assignment.h"

namespace spmdx {

// Both of the below. What is gathered more than once shows only after a search: where options.gather_budget allows for
// keeping some of it, a second search reckons with that.
std::unique_ptr<const Assignment> decide(const Graph& graph, const CompileOptions& options);

// Decides every node once, in program order, by what is known so far.
void choose_greedily(Assignment& assignment);

// Changes decisions, one node or a wave of neighbours at a time, as long as the total falls. So the result is never
// worse than what it started from.
void improve(Assignment& assignment);

}  // namespace spmdx
