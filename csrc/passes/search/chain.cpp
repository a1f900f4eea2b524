// SPDX-License-Identifier: Apache-2.0
// Chain: best responses of single nodes, and neighbours that follow each other.
#include "passes/search/chain.h"

#include <algorithm>
#include <iterator>

#include "passes/settings/limits.h"

namespace spmdx {

// Takes the choice that costs least; false if that is what is decided already.
bool Chain::take_best_response(NodeId node) {
  ChoiceRef best = assignment_.choice_ref(node);
  const int64_t before = assignment_.cost_around(node, *best);
  int64_t least = before;
  if (before == 0) return false;
  for (const ChoiceRef& choice : assignment_.choices(node)) {
    const int64_t now = assignment_.cost_around(node, *choice);
    if (now >= least) continue;
    best = choice;
    least = now;
  }
  if (least == before) return false;
  assignment_.decide(node, best);
  return true;
}

void Chain::add_neighbours(NodeId node, std::set<NodeId>& to) const {
  const OpContext op = assignment_.context(node);
  for (size_t t = 0; t < op.num_tensors(); ++t) {
    const ValueId value = assignment_.value(node, t);
    if (graph_.values[value].producer != kNone) to.insert(graph_.values[value].producer);
    for (NodeId user : assignment_.users(value)) to.insert(user);
  }
}

void Chain::descend(const std::vector<NodeId>& nodes) {
  std::set<NodeId> now(nodes.begin(), nodes.end());
  for (size_t answer = 0; answer < kLimits.answers && !now.empty(); ++answer) {
    std::set<NodeId> next;
    for (NodeId node : now)
      if (take_best_response(node)) add_neighbours(node, next);
    now = std::move(next);
  }
}

// As cheaply as the node can. False where it cannot.
bool Chain::adopt(const Step& step) {
  const auto& [node, tensor, layout] = step;
  ChoiceRef best;
  int64_t least = 0;
  for (const ChoiceRef& choice : assignment_.choices(node, tensor, layout)) {
    if (choice->placement.of(tensor) != layout) continue;
    const int64_t now = assignment_.cost_around(node, *choice);
    if (best && now >= least) continue;
    best = choice;
    least = now;
  }
  if (!best) return false;
  assignment_.decide(node, best);
  return true;
}

// Asks the producers of the operands of a node that changed to make them as it now wants them.
void Chain::ask_producers(NodeId node, const Choice& before, Steps& steps) const {
  const Choice& now = assignment_.choice(node);
  const std::vector<ValueId>& operands = graph_.nodes[node].inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    const NodeId producer = graph_.values[operands[i]].producer;
    const ShardingRef wanted = now.placement.inputs[i];
    if (producer == kNone || wanted == before.placement.inputs[i]) continue;
    if (assignment_.available(operands[i]) == wanted) continue;
    if (assignment_.produced(operands[i])->partial && !wanted->partial)
      tell_readers(operands[i], wanted,
                   steps);  // a sum that is made for one reader serves the others, too
    else
      steps.push_back(
          {producer, graph_.nodes[producer].inputs.size() + operands[i] - graph_.nodes[producer].output, wanted});
  }
}

void Chain::tell_neighbours(NodeId node, const Choice& before, Steps& steps) const {
  ask_producers(node, before, steps);
  const Choice& now = assignment_.choice(node);
  for (size_t r = 0; r < now.placement.outputs.size(); ++r)
    if (now.placement.outputs[r] != before.placement.outputs[r])
      tell_readers(graph_.nodes[node].output + static_cast<ValueId>(r),
                   assignment_.available(graph_.nodes[node].output + static_cast<ValueId>(r)), steps);
}

// Whether a reader of `value`, partial as in `layout`, has another operand that is partial likewise.
bool Chain::joins(NodeId user, ValueId value, const ShardingRef& layout) const {
  const std::vector<ValueId>& operands = graph_.nodes[user].inputs;
  return std::any_of(operands.begin(), operands.end(), [&](ValueId other) {
    const ShardingRef made = assignment_.produced(other);
    return other != value && made->partial == layout->partial && made->reduction == layout->reduction;
  });
}

void Chain::tell_readers(ValueId value, const ShardingRef& layout, Steps& steps) const {
  for (NodeId user : assignment_.users(value)) {
    const std::vector<ValueId>& operands = graph_.nodes[user].inputs;
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i] == value && assignment_.choice(user).placement.inputs[i] != layout)
        steps.push_back({user, i, layout});
  }
}

void Chain::tell_joining_readers(ValueId sum, Steps& steps) const {
  const ShardingRef made = assignment_.produced(sum);
  Steps all;
  tell_readers(sum, made, all);
  std::copy_if(all.begin(), all.end(), std::back_inserter(steps),
               [&](const Step& step) { return joins(step.node, sum, made); });
}

void Chain::spread_out(Steps steps, Spread spread, std::set<NodeId> touched) {
  while (!steps.empty() && touched.size() < kLimits.chain) {
    const Step step = steps.front();
    steps.pop_front();
    if (touched.contains(step.node)) continue;
    const ChoiceRef old = assignment_.choice_ref(step.node);
    if (!adopt(step)) continue;
    touched.insert(step.node);
    const bool made_for_one = spread == Spread::branch && step.tensor >= graph_.nodes[step.node].inputs.size();
    if (spread != Spread::joins)
      made_for_one ? ask_producers(step.node, *old, steps) : tell_neighbours(step.node, *old, steps);
    else if (const ValueId sum = graph_.nodes[step.node].output; assignment_.produced(sum)->partial)
      tell_joining_readers(sum, steps);
  }
  settle(touched);
}

void Chain::settle(const std::set<NodeId>& changed) {
  std::set<NodeId> asked = changed;
  for (NodeId node : changed) add_neighbours(node, asked);
  descend({asked.begin(), asked.end()});
}

bool Chain::keep(const Before& since, bool better) {
  better ? assignment_.forget() : assignment_.undo(since.mark);
  return better;
}

}  // namespace spmdx
