// SPDX-License-Identifier: Apache-2.0
// Time line: when every node of a plan runs by the cost model, on the device that has most to do.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

struct Span {
  NodeId node = 0;
  bool wire = false;  // on a wire's lane, beside that of the kernels
  int64_t start_ns = 0, end_ns = 0;
  int64_t rank = -1;  // along the stage axis, whose devices run it; -1: all devices do
  int64_t from = -1;  // the rank that sends to it, if another does
  size_t level = 0;   // of the topology, whose links a wire is
};

// Devices of each coordinate of the stage axis have a lane of kernels and one for the links of each level, in program
// order; a node starts when its operands are there and its lanes are free: what is sent is on those of both ends, and
// takes their processors as its level says. Nodes that take no time are left out. REQUIRES: a compiled graph.
std::vector<Span> time_line(const Graph& graph, const Topology& topology);
// When the last one ends.
int64_t last_end_ns(const std::vector<Span>& spans);
// The axis along which ranks are; -1: there is one rank.
int axis_of_places(const Graph& graph);
// What a time line calls a node: the kind of a collective, or its op.
std::string label(const Node& node);

}  // namespace spmdx
