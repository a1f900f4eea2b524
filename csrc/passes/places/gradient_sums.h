// SPDX-License-Identifier: Apache-2.0
// Gradient sums: terms that several stages make for one parameter are added up stage by stage.
#pragma once
#include <optional>

#include "passes/places/stages.h"

namespace spmdx {

// Adds of terms that backward passes make. REQUIRES: partitioned; `stages` know phases, and what is after_backward.
struct GradientSums {
  std::map<NodeId, std::vector<ValueId>> terms;  // by the node that makes the sum, in the order in which they are added
  std::vector<bool> inner;                       // by node: it adds some of the terms of a sum
};
GradientSums gradient_sums(const Graph& graph, const Stages& stages);

// A graph whose nodes have stages.
struct SplitSums {
  Graph graph;
  std::vector<int32_t> of_node;  // stage, or kAllStages
  std::vector<int32_t> adds;     // by node: the stage that makes the terms which it adds; kAllStages: it does not
};

// A sum of terms of backward passes, of which another stage than that of the parameter makes several, becomes a sum on
// each stage and a sum of these: so each stage sends once a step, not once a microbatch. Nothing where there is none.
std::optional<SplitSums> split_gradient_sums(const Graph& graph, const Stages& stages);

}  // namespace spmdx
