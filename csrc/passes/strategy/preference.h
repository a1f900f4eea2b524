// SPDX-License-Identifier: Apache-2.0
// Preference: what one node would do by itself, given what is known of its operands and results.
#pragma once
#include <optional>
#include <vector>

#include "passes/strategy/strategy.h"

namespace spmdx {

// What is known of the values of a graph, by value.
struct Known {
  std::vector<ShardingRef> shardings;
  std::vector<bool> fixed;   // the user's annotation: never changed
  std::vector<bool> hidden;  // not to be looked at yet

  bool cuts(ValueId value) const { return !hidden[value] && !shardings[value]->replicated(); }
};

// The strategy that takes least time, including the moves between the known layouts of the tensors and those that it
// wants. Nothing where no tensor is known to be cut.
std::optional<Strategy> preferred(const Node& node, const OpContext& op, const Known& known, const Topology& topology);

// Operands first, then results.
ValueId tensor_of(const Node& node, size_t tensor);

}  // namespace spmdx
