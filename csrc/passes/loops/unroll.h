// SPDX-License-Identifier: Apache-2.0
// Unroll: what was planned for the second iteration of a loop is done for all up to the last one.
#pragma once
#include "passes/loops/roll.h"

namespace spmdx {

// False, and the graph as it was, where the plans of the second and the last iteration differ. REQUIRES: `graph` was
// made of what roll() has given, by passes that keep inputs and outputs, and every value has its place.
bool unroll(Graph& graph, const Rolled& rolled);

}  // namespace spmdx
