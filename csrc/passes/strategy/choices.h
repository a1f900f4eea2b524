// SPDX-License-Identifier: Apache-2.0
// Choices: everything one node could do, given the shardings its neighbours have or want.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "passes/strategy/strategy.h"

namespace spmdx {

// A strategy with what follows from it.
struct Choice {
  Strategy strategy;
  Placement placement;
  OpTime time;
};
using ChoiceRef = std::shared_ptr<const Choice>;
using Choices = std::vector<ChoiceRef>;

// Null where some tensor cannot be laid out so.
ChoiceRef choice_of(const OpContext& op, Strategy strategy, const Topology& topology);

// hints[tensor]: distinct shardings, operands first, then results.
using Hints = std::vector<std::vector<ShardingRef>>;

// A deferred reduction: bit i of `partial_operands` says that operand i stays partial over `sub_axes`. `made`: one of
// these operands is whole, and is made partial for it.
struct Deferral {
  SubAxisSet sub_axes = 0;
  Reduction reduction = Reduction::none;
  uint64_t partial_operands = 0;
  bool made = false;
  bool operator==(const Deferral&) const = default;
};
// Every way in which partial operands may flow through the op, for any reduction, where no operand has to be made
// partial.
std::vector<Deferral> all_deferrals(const OpContext& op, SubAxisSet sub_axes);

// Keeps the choices that it has made: layers of a model are alike.
class ChoiceTable {
 public:
  explicit ChoiceTable(const Topology& topology) : topology_(topology) {}
  // Strategies that each hint leads. Before them come the same with partial operands left partial, after them those for
  // which some operand has to be made partial. Never empty.
  const Choices& of(const OpContext& op, const Hints& hints);
  // Null where some tensor cannot be laid out so. Until the next call.
  const ChoiceRef& with(const OpContext& op, Strategy strategy);

 private:
  Choices make(const OpContext& op, const Hints& hints);

  struct Entry {
    const Call* call;
    Hints hints;
    Choices choices;
  };
  struct Known {
    const Call* call;
    Strategy strategy;
    ChoiceRef choice;
  };
  const Topology& topology_;
  std::unordered_map<uint64_t, std::vector<std::unique_ptr<Entry>>> entries_;
  std::unordered_map<uint64_t, std::vector<Known>> choices_;
};

}  // namespace spmdx
