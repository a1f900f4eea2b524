// SPDX-License-Identifier: Apache-2.0
// Time line: when every node of a plan runs by the cost model, on the device that has most to do.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

struct Span {
  NodeId node = 0;
  bool wire = false;  // on the wire's lane, beside that of the kernels
  int64_t start_ns = 0, end_ns = 0;
};

// Two lanes, each in program order; a node starts when its operands are there and its lane is free. Nodes that take no
// time are left out. REQUIRES: a compiled graph.
std::vector<Span> time_line(const Graph& graph, const Topology& topology);
// What a time line calls a node: the kind of a collective, or its op.
std::string label(const Node& node);

}  // namespace spmdx
