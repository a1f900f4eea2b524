// SPDX-License-Identifier: Apache-2.0
// Order: the nodes of a graph with stages, in the order of a schedule.
#pragma once
#include "graph/graph.h"
#include "passes/settings/options.h"

namespace spmdx {

// Orders nodes by Graph::schedule; values stay what they are. Throws ShardingError for a schedule of other stages or
// microbatches than the graph has. REQUIRES and ensures: every value has its place.
void order_by_schedule(Graph& graph, const CompileOptions& options);

}  // namespace spmdx
