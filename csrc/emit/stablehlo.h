// SPDX-License-Identifier: Apache-2.0
// StableHLO: the text of graphs of one device, for compilers that take MLIR.
// Source: StableHLO specification, version 1.0.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// A module whose function "main" takes the inputs of a graph and gives its outputs. Where PyTorch's kernels might
// raise, as an index may be out of range, it gives one scalar more, which is false if they would. Ops are of ATen or
// `prims`, without sharding, and have the types that decompositions of PyTorch leave. Throws ShardingError that names
// an op that is not written, and says why.
std::string stablehlo(const Graph& graph);
// A module whose function "main" is the whole program, and raises nothing: a wrong index reads some row. On a mesh,
// annotations of inputs and outputs and constraints are Shardy's attributes, with which XLA partitions it; what has
// none is cut as XLA likes. Throws ShardingError also where Shardy has no such sharding.
std::string stablehlo_of_step(const Graph& graph);
// Ops that are written, in whatever use, sorted.
std::vector<std::string> ops_of_stablehlo();

}  // namespace spmdx
