// SPDX-License-Identifier: Apache-2.0
// Recomputed: what a plan computes anew to hold less.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// The same op of the same line, on the device that has most to do.
struct Recomputed {
  std::string op;
  SourceId source = 0;
  int64_t count = 0, flops = 0, ns = 0;
};

// Those that take longest first, without data movement. REQUIRES: a compiled graph.
std::vector<Recomputed> recomputed(const Graph& graph, const Topology& topology);

}  // namespace spmdx
