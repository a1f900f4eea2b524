// SPDX-License-Identifier: Apache-2.0
// Places: the pass that says where every value is.
#pragma once
#include "graph/graph.h"
#include "passes/settings/options.h"

namespace spmdx {

// Gives every value its place, where some have one, and sends what is read elsewhere. Passes before it know no places.
// REQUIRES and ensures: partitioned.
void place(Graph& graph, const CompileOptions& options);

}  // namespace spmdx
