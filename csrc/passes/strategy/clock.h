// SPDX-License-Identifier: Apache-2.0
// Clock: how long a node of a compiled graph takes by the cost model.
#pragma once
#include "graph/graph.h"
#include "sharding/topology.h"

namespace spmdx {

// Of a collective on the wire, of an op on the device that has most to do. REQUIRES: every value has its sharding.
int64_t clock_ns(const Graph& graph, const Node& node, const Topology& topology);

}  // namespace spmdx
