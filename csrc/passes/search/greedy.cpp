// SPDX-License-Identifier: Apache-2.0
// The greedy start: nodes in program order, each by the layouts of its operands and those that propagation wants of its
// results.
#include <algorithm>
#include <utility>

#include "passes/search/assignment.h"
#include "passes/search/search.h"

namespace spmdx {
namespace {

class Greedy {
 public:
  Greedy(Assignment& assignment, const Wish& wish)
      : assignment_(assignment), wish_(wish), stays_partial_(assignment.graph().values.size(), Known::no_idea) {}

  void run() {
    for (NodeId node = 0; node < assignment_.graph().nodes.size(); ++node) assignment_.decide(node, wished(node));
    assignment_.forget();
  }

 private:
  // Whether a partial value may pass through these uses without growing.
  bool passes_on(NodeId user, UsesOfOne uses) const {
    const OpContext op = assignment_.context(user);
    if (op.rule->linearity == Linearity::none) return false;
    int64_t out = 0;
    for (const TensorType& type : op.call->outputs) out += type.bytes();
    return std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
      return takes_part(*op.rule, use.operand) && op.call->inputs[use.operand].bytes() >= out;
    });
  }

  bool all_pass_on(ValueId value) const {
    NodeId last = kNone;
    for (const Read& read : assignment_.reads(value)) {
      if (read.node == std::exchange(last, read.node)) continue;
      bool passes = false;
      assignment_.uses().each_operand(read.node, [&](UsesOfOne uses) {
        if (uses.front().value == value) passes = passes_on(read.node, uses);
      });
      if (!passes) return false;
    }
    return true;
  }

  // Whether it pays to leave `value` partial: no other reader needs its sum. Looked at once for all its readers.
  bool may_stay_partial(ValueId value) {
    Known& known = stays_partial_[value];
    if (known == Known::no_idea) {
      const std::span<const Read> reads = assignment_.reads(value);
      const bool one_reader = reads.empty() || reads.front().node == reads.back().node;
      known = !assignment_.constrained(value) && (one_reader || all_pass_on(value)) ? Known::yes : Known::no;
    }
    return known == Known::yes;
  }

  // Whether the operands that the strategy leaves partial may stay so: each was made partial in this way.
  bool may_defer(NodeId node, const OpContext& op, const Strategy& strategy) {
    bool may = true;
    assignment_.uses().each_operand(node, [&](UsesOfOne uses) {
      const ShardingRef& produced = assignment_.produced(uses.front().value);
      for (const Use& use : uses) {
        if (!may || !takes_part(*op.rule, use.operand)) continue;
        const bool carries = use.operand >= 64 || (strategy.partial_operands >> use.operand & 1);
        if (!carries && !produced->partial) continue;
        may = carries && produced->partial == strategy.partial && produced->reduction == strategy.reduction &&
              may_stay_partial(use.value) && passes_on(node, uses);
      }
    });
    return may;
  }

  int64_t cost(NodeId node, const OpContext& op, const Choice& choice) const {
    int64_t total = assignment_.cost_before(node, choice);
    for (size_t i = 0; i < choice.placement.outputs.size(); ++i) {
      const ValueId value = assignment_.value(node, op.call->inputs.size() + i);
      if (assignment_.reads(value).empty() && !assignment_.constrained(value)) continue;
      const ShardingRef& made = choice.placement.outputs[i];
      const int64_t move = assignment_.move_ns(value, made, assignment_.graph().values[value].sharding);
      // Ops that follow would take this layout over, and each of their results would have to move as well.
      total += made->partial ? move : 2 * move;
    }
    return total;
  }

  ChoiceRef best(NodeId node) {
    const OpContext op = assignment_.context(node);
    ChoiceRef best;
    int64_t best_cost = 0;
    for (const ChoiceRef& choice : assignment_.choices(node)) {
      if (choice->strategy.partial && !may_defer(node, op, choice->strategy)) continue;
      const int64_t now = cost(node, op, *choice);
      if (best && now >= best_cost) continue;
      best = choice;
      best_cost = now;
    }
    return best;
  }

  ChoiceRef wished(NodeId node) {
    ChoiceRef choice = wish_ ? wish_(node) : nullptr;
    return choice ? choice : best(node);
  }

  enum class Known : uint8_t { no_idea, no, yes };
  Assignment& assignment_;
  const Wish& wish_;
  std::vector<Known> stays_partial_;  // by value
};

}  // namespace

void choose_greedily(Assignment& assignment, const Wish& wish) { Greedy(assignment, wish).run(); }

}  // namespace spmdx
