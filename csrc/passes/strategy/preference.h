// SPDX-License-Identifier: Apache-2.0
// Preference: what one node would do by itself, given what is known of its operands and results.
#pragma once
#include <memory>
#include <optional>
#include <unordered_map>
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

// Keeps what nodes prefer: layers of a model are alike.
class PreferenceTable {
 public:
  struct Preference {
    Strategy strategy;
    Placement placement;
  };
  explicit PreferenceTable(const Topology& topology) : topology_(topology) {}
  // As preferred(); null where that gives nothing. Calls of nodes outlive this.
  const Preference* of(const Node& node, const OpContext& op, const Known& known);

 private:
  struct TensorKnown {
    ShardingRef sharding;
    bool fixed, hidden;
    bool operator==(const TensorKnown&) const = default;
  };
  struct Entry {
    const Call* call;
    std::vector<TensorKnown> tensors;
    std::optional<Preference> preference;
  };
  const Topology& topology_;
  std::unordered_map<uint64_t, std::vector<std::unique_ptr<Entry>>> entries_;
};

// Operands first, then results.
ValueId tensor_of(const Node& node, size_t tensor);

}  // namespace spmdx
