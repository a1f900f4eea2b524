// SPDX-License-Identifier: Apache-2.0
// Traced: the program of one step as it was recorded, for compilers that partition it themselves. Nothing runs.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "runtime/data/data.h"

namespace spmdx::bridge {

// Its floats are constants. Behind the values that were asked for its outputs are the values of its constraints.
struct Traced {
  Graph graph;
  std::vector<DataRef> data_of_inputs;
  size_t results = 0;  // how many outputs were asked for
};

// Both: Program threads. Takes the recorder's lock. Throw ShardingError: annotations have two meshes.

// What the tensors show, in their order. REQUIRES: they are ours. Throws ShardingError: one is computed already.
Traced traced_values(const std::vector<at::Tensor>& tensors);
// All that the end of the step would compute.
Traced traced_step();

// Which inputs are numbers of Python, and what they are: a scalar on the CPU by index of input. Takes Data.
std::map<size_t, at::Tensor> numbers_in(const Traced& traced);
// StableHLO of a text of the same program in other ops, whose inputs are those that are no numbers and whose outputs
// are the same; `sharded`: with annotations. Throws ShardingError, led by the user's line: one is none of Shardy's.
std::string stablehlo_of(const Traced& traced, const std::string& text, bool sharded);

}  // namespace spmdx::bridge
