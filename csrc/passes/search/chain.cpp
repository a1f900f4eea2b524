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
    const int64_t now = assignment_.cost_around(node, *choice, least);
    if (now >= least) continue;
    best = choice;
    least = now;
  }
  if (least == before) return false;
  assignment_.decide(node, best);
  return true;
}

// All who have a tensor of the node are asked in the next round.
void Chain::announce(NodeId node) {
  const OpContext op = assignment_.context(node);
  for (size_t t = 0; t < op.num_tensors(); ++t) {
    Announced& announced = announced_[assignment_.value(node, t)];
    if (announced.last != round_) announced = {round_, announced.last};
  }
}

bool Chain::heard_of(NodeId node, uint64_t round) const {
  const OpContext op = assignment_.context(node);
  for (size_t t = 0; t < op.num_tensors(); ++t) {
    const Announced& announced = announced_[assignment_.value(node, t)];
    if (announced.last == round || announced.before == round) return true;
  }
  return false;
}

// A round asks all who have a tensor of a node that changed in the round before, in program order. Those who would
// change nothing are left out; so one may turn out to belong to a round that has begun. `later` does not.
void Chain::answer(std::set<NodeId> now, NodeId later) {
  for (size_t answer = 0; answer < kLimits.answers && !now.empty(); ++answer, later = kNone) {
    const uint64_t before = round_++;
    std::set<NodeId> next, around;
    for (const NodeId node : now) {
      const bool changed = take_best_response(node);
      assignment_.unsettled().settle(node);
      if (!changed) continue;
      announce(node);
      around.clear();
      assignment_.unsettled().call_around(node, around);
      for (const NodeId other : around)
        (other > node && other != later && heard_of(other, before) ? now : next).insert(other);
    }
    now = std::move(next);
  }
  for (const NodeId node : now) assignment_.unsettled().dismiss(node);
}

void Chain::descend() {
  std::set<NodeId> all;
  for (NodeId node = 0; node < graph_.nodes.size(); ++node) {
    all.insert(all.end(), node);
    assignment_.unsettled().call(node);
  }
  answer(std::move(all), kNone);
}

void Chain::descend_around(NodeId node) {
  ++round_;
  announce(node);
  std::set<NodeId> around;
  assignment_.unsettled().call_around(node, around);
  if (around.erase(node)) assignment_.unsettled().dismiss(node);
  answer(std::move(around), node);
}

// As cheaply as the node can. False where it cannot.
bool Chain::adopt(const Step& step) {
  const auto& [node, tensor, layout] = step;
  ChoiceRef best;
  int64_t least = INT64_MAX;
  for (const ChoiceRef& choice : assignment_.choices(node, tensor, layout)) {
    if (choice->placement.of(tensor) != layout) continue;
    const int64_t now = assignment_.cost_around(node, *choice, least);
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
  assignment_.each_other_use(value, layout,
                             [&](const Read& read) { steps.push_back({read.node, read.operand, layout}); });
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
  ++round_;
  std::set<NodeId> asked = changed;
  for (const NodeId node : changed) {
    announce(node);
    assignment_.unsettled().call(node);
    assignment_.unsettled().call_around(node, asked);
  }
  answer(std::move(asked), kNone);
}

bool Chain::keep(const Before& since, bool better) {
  better ? assignment_.forget() : assignment_.undo(since.mark);
  return better;
}

}  // namespace spmdx
