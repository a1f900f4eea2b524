// SPDX-License-Identifier: Apache-2.0
// Elementwise: which output of the step each value becomes, element by element.
#pragma once
#include <functional>

#include "graph/graph.h"
#include "rules/rule/rule.h"

namespace spmdx {

// By value: the first found of `outputs` that it becomes through ops whose result has the factors of the operand; null
// where there is none. Only the first result of an op counts.
std::vector<const Output*> becomes_element_by_element(const Graph& graph, const std::vector<OpRuleRef>& rules,
                                                      const std::function<bool(const Output&)>& outputs);

}  // namespace spmdx
