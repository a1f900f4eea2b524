// SPDX-License-Identifier: Apache-2.0
// Brute force: every strategy of every node of a small graph, and the least time that any combination of them takes.
#pragma once
#include "passes/settings/options.h"
#include "passes/strategy/strategy.h"

namespace spmdx::test {

// One way to run a node: over each axis of the mesh nothing, a factor that is cut, or operands that stay partial.
struct Way {
  Placement placement;
  int64_t compute_ns = 0;
};
// All of one node; of those that lay out alike the quickest.
std::vector<Way> ways_of(const Graph& graph, const Node& node, const CompileOptions& options);

struct Optimum {
  int64_t total_ns = 0;
  int64_t tried = 0;  // combinations that were counted to the end
};

// What runs and what moves, counted here once more: every reader of a value takes the nearest layout that there is by
// then. No copy is given up in between, so `graph` is to have no state. REQUIRES: propagated, on one mesh, without
// constraints.
Optimum brute_force(const Graph& graph, const CompileOptions& options);

}  // namespace spmdx::test
