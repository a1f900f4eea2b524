// SPDX-License-Identifier: Apache-2.0
// Homes: the stages that are to keep what becomes of gradients.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// By value: `kept`, where outputs are to lie (negative: on no stage), and the same for what becomes one of them element
// by element: gradients, also those that are transposed or summed over devices on the way, and what the optimizer makes
// of them. `after_backward` is by value, `updates` by node: it is an optimizer's.
std::vector<int32_t> homes(const Graph& graph, std::vector<int32_t> kept, const std::vector<bool>& after_backward,
                           const std::vector<bool>& updates);

}  // namespace spmdx
