// SPDX-License-Identifier: Apache-2.0
// The greedy start: nodes in program order, each by the layouts of its operands and those that propagation wants of its
// results.
#include <algorithm>
#include <optional>

#include "passes/search/assignment.h"
#include "passes/search/search.h"

namespace spmdx {
namespace {

// Whether a partial value may pass through this use without growing.
bool passes_on(const Assignment& assignment, NodeId user, ValueId value) {
  const OpContext op = assignment.context(user);
  if (op.rule->linearity == Linearity::none) return false;
  int64_t out = 0;
  for (const TensorType& type : op.call->outputs) out += type.bytes();
  for (size_t i = 0; i < op.call->inputs.size(); ++i)
    if (assignment.value(user, i) == value && (!takes_part(*op.rule, i) || op.call->inputs[i].bytes() < out))
      return false;
  return true;
}

// Whether it pays to leave `value` partial: no other reader needs its sum.
bool may_stay_partial(const Assignment& assignment, ValueId value) {
  if (assignment.constrained(value)) return false;
  const std::vector<NodeId>& users = assignment.users(value);
  return users.size() <= 1 ||
         std::all_of(users.begin(), users.end(), [&](NodeId user) { return passes_on(assignment, user, value); });
}

// Whether the operands that the strategy leaves partial may stay so: each was made partial in this way.
bool may_defer(const Assignment& assignment, NodeId node, const OpContext& op, const Strategy& strategy) {
  for (size_t i = 0; i < op.call->inputs.size(); ++i) {
    if (!takes_part(*op.rule, i)) continue;
    const ValueId value = assignment.value(node, i);
    const ShardingRef produced = assignment.produced(value);
    const bool carries = i >= 64 || (strategy.partial_operands >> i & 1);
    if (!carries && !produced->partial) continue;
    if (!carries || produced->partial != strategy.partial || produced->reduction != strategy.reduction) return false;
    if (!may_stay_partial(assignment, value) || !passes_on(assignment, node, value)) return false;
  }
  return true;
}

int64_t cost(const Assignment& assignment, NodeId node, const OpContext& op, const Choice& choice) {
  int64_t total = assignment.cost_before(node, choice);
  for (size_t i = 0; i < choice.placement.outputs.size(); ++i) {
    const ValueId value = assignment.value(node, op.call->inputs.size() + i);
    if (assignment.users(value).empty() && !assignment.constrained(value)) continue;
    const ShardingRef made = choice.placement.outputs[i];
    const int64_t move = assignment.move_ns(value, made, assignment.graph().values[value].sharding);
    // Ops that follow would take this layout over, and each of their results would have to move as well.
    total += made->partial ? move : 2 * move;
  }
  return total;
}

}  // namespace

void choose_greedily(Assignment& assignment) {
  for (NodeId node = 0; node < assignment.graph().nodes.size(); ++node) {
    const OpContext op = assignment.context(node);
    ChoiceRef best;
    int64_t best_cost = 0;
    for (const ChoiceRef& choice : assignment.choices(node)) {
      if (choice->strategy.partial && !may_defer(assignment, node, op, choice->strategy)) continue;
      const int64_t now = cost(assignment, node, op, *choice);
      if (best && now >= best_cost) continue;
      best = choice;
      best_cost = now;
    }
    assignment.decide(node, best);
  }
  assignment.forget();
}

}  // namespace spmdx
