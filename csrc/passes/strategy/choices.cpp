// SPDX-License-Identifier: Apache-2.0
// Choices of a node: its candidate strategies, without and with deferred reductions.
#include "passes/strategy/choices.h"

#include <algorithm>

#include "base/error.h"

namespace spmdx {
namespace {

bool has_partial(const std::vector<ShardingRef>& hints, SubAxisSet sub_axes, Reduction reduction) {
  return std::any_of(hints.begin(), hints.end(),
                     [&](const ShardingRef& s) { return s->partial == sub_axes && s->reduction == reduction; });
}

bool admits(Linearity linearity, Reduction reduction) {
  if (linearity == Linearity::movement) return true;
  if (linearity == Linearity::monotone) return reduction == Reduction::max || reduction == Reduction::min;
  return linearity != Linearity::none && reduction == Reduction::sum;
}

void add_deferral(std::vector<Deferral>& deferrals, const Deferral& deferral) {
  if (std::find(deferrals.begin(), deferrals.end(), deferral) == deferrals.end()) deferrals.push_back(deferral);
}

// What can flow through this op, given that some operand is partial over `sub_axes` already.
void deferrals_of(const OpContext& op, const Hints& hints, SubAxisSet sub_axes, Reduction reduction,
                  std::vector<Deferral>& deferrals) {
  const Linearity linearity = op.rule->linearity;
  if (!admits(linearity, reduction)) return;
  Deferral all{sub_axes, reduction, 0, false};
  size_t count = 0;
  for (size_t i = 0; i < op.rule->inputs.size(); ++i) {
    if (!takes_part(*op.rule, i)) continue;
    ++count;
    const bool partial = has_partial(hints[i], sub_axes, reduction);
    if (linearity == Linearity::each && partial && i < 64)
      add_deferral(deferrals, {sub_axes, reduction, uint64_t{1} << i, false});
    if (i < 64) all.partial_operands |= uint64_t{1} << i;
    all.made |= !partial;
  }
  if (linearity == Linearity::each || (linearity == Linearity::monotone && count != 1)) return;
  // A whole value can be made partial only for a sum: it becomes zero on all devices but one.
  if (!all.made || reduction == Reduction::sum) add_deferral(deferrals, all);
}

std::vector<Deferral> deferrals_of(const OpContext& op, const Hints& hints) {
  std::vector<Deferral> deferrals;
  for (size_t i = 0; i < op.rule->inputs.size(); ++i)
    if (takes_part(*op.rule, i))
      for (const ShardingRef& sharding : hints[i])
        if (sharding->partial) deferrals_of(op, hints, sharding->partial, sharding->reduction, deferrals);
  return deferrals;
}

uint64_t hash_of(const Call& call, const Hints& hints) {
  uint64_t h = call.hash;
  for (const auto& tensor : hints) {
    h = hash_combine(h, tensor.size());
    for (const ShardingRef& sharding : tensor) h = hash_combine(h, reinterpret_cast<uintptr_t>(sharding.get()));
  }
  return h;
}

}  // namespace

std::vector<Deferral> all_deferrals(const OpContext& op, SubAxisSet sub_axes) {
  constexpr Reduction kAll[] = {Reduction::sum,  Reduction::max, Reduction::min,
                                Reduction::prod, Reduction::any, Reduction::all};
  std::vector<Deferral> deferrals;
  for (Reduction reduction : kAll) {
    Hints hints(op.num_tensors());
    for (size_t i = 0; i < op.rule->inputs.size(); ++i) {
      Sharding partial = *replicated(op.mesh, op.type(i).shape.size());
      partial.partial = sub_axes;
      partial.reduction = reduction;
      hints[i] = {intern(std::move(partial), op.type(i).shape)};
    }
    deferrals_of(op, hints, sub_axes, reduction, deferrals);
  }
  return deferrals;
}

ChoiceRef choice_of(const OpContext& op, Strategy strategy, const Topology& topology) {
  auto placement = place(op, strategy);
  if (!placement) return nullptr;
  const OpTime time = time_of(op, strategy, topology);
  return std::make_shared<const Choice>(Choice{std::move(strategy), std::move(*placement), time});
}

Choices ChoiceTable::make(const OpContext& op, const Hints& hints) {
  const std::vector<Strategy> whole = candidates(op, hints);
  const std::vector<Deferral> deferrals = deferrals_of(op, hints);
  Choices choices;
  const auto add = [&](Strategy strategy) {
    if (const ChoiceRef& choice = with(op, std::move(strategy))) choices.push_back(choice);
  };
  const auto add_deferred = [&](bool made) {
    for (const Strategy& base : whole)
      for (const Deferral& deferral : deferrals) {
        if (deferral.made != made || (base.used() & deferral.sub_axes)) continue;
        Strategy strategy = base;
        strategy.partial = deferral.sub_axes;
        strategy.reduction = deferral.reduction;
        strategy.partial_operands = deferral.partial_operands;
        add(std::move(strategy));
      }
  };
  add_deferred(false);  // first, so that these win where costs are equal
  for (const Strategy& strategy : whole) add(strategy);
  add_deferred(true);
  internal_check(!choices.empty(), "no strategy for " + op.call->op);
  return choices;
}

const ChoiceRef& ChoiceTable::with(const OpContext& op, Strategy strategy) {
  auto& bucket = choices_[hash_combine(op.call->hash, hash(strategy))];
  for (const Known& known : bucket)
    if (known.strategy == strategy && (known.call == op.call || *known.call == *op.call)) return known.choice;
  ChoiceRef choice = choice_of(op, strategy, topology_);
  bucket.push_back({op.call, std::move(strategy), std::move(choice)});
  return bucket.back().choice;
}

const Choices& ChoiceTable::of(const OpContext& op, const Hints& hints) {
  auto& bucket = entries_[hash_of(*op.call, hints)];
  for (const auto& entry : bucket)
    if (entry->hints == hints && (entry->call == op.call || *entry->call == *op.call)) return entry->choices;
  bucket.push_back(std::make_unique<Entry>(Entry{op.call, hints, make(op, hints)}));
  return bucket.back()->choices;
}

}  // namespace spmdx
