// SPDX-License-Identifier: Apache-2.0
// Rematerialise: a pass that computes values anew instead of holding them.
#pragma once
#include "graph/graph.h"
#include "passes/settings/options.h"

namespace spmdx {

// Where devices would hold more than the limit, drops values whose computing anew costs least. What no drops make fit
// is left with a low peak. REQUIRES: nodes are in the order in which they run.
void rematerialise(Graph& graph, const CompileOptions& options);

}  // namespace spmdx
