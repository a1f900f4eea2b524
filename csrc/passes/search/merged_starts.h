// SPDX-License-Identifier: Apache-2.0
// Merged starts: what a total counts too much, as every move in it is a collective of its own.
#pragma once
#include <vector>

#include "graph/graph.h"
#include "rules/rule/rule.h"

namespace spmdx {

// By value: whether the schedule merges its moves with others, as gathers of inputs, which are ready from the start,
// and sums of gradients, which nobody waits for.
std::vector<bool> merged_values(const Graph& graph, const std::vector<OpRuleRef>& rules);

}  // namespace spmdx
