// SPDX-License-Identifier: Apache-2.0
// Choices of a node: its candidate strategies, whole and delayed.
#include "passes/strategy/choices.h"

#include <algorithm>

#include "base/error.h"

namespace spmdx {
namespace {

bool has_partial(const std::vector<ShardingRef>& hints, AtomSet atoms, Reduction reduction) {
  return std::any_of(hints.begin(), hints.end(),
                     [&](const ShardingRef& s) { return s->partial == atoms && s->reduction == reduction; });
}

bool admits(Linearity linearity, Reduction reduction) {
  if (linearity == Linearity::movement) return true;
  if (linearity == Linearity::monotone) return reduction == Reduction::max || reduction == Reduction::min;
  return linearity != Linearity::none && reduction == Reduction::sum;
}

void add_delay(std::vector<Delay>& delays, const Delay& delay) {
  if (std::find(delays.begin(), delays.end(), delay) == delays.end()) delays.push_back(delay);
}

// What can flow through this op, given that some operand is partial over `atoms` already.
void delays_of(const OpContext& op, const Hints& hints, AtomSet atoms, Reduction reduction,
               std::vector<Delay>& delays) {
  const Linearity linearity = op.rule->linearity;
  if (!admits(linearity, reduction)) return;
  Delay all{atoms, reduction, 0, false};
  size_t count = 0;
  for (size_t i = 0; i < op.rule->inputs.size(); ++i) {
    if (!takes_part(*op.rule, i)) continue;
    ++count;
    const bool partial = has_partial(hints[i], atoms, reduction);
    if (linearity == Linearity::each && partial && i < 64)
      add_delay(delays, {atoms, reduction, uint64_t{1} << i, false});
    if (i < 64) all.carriers |= uint64_t{1} << i;
    all.made |= !partial;
  }
  if (linearity == Linearity::each || (linearity == Linearity::monotone && count != 1)) return;
  // Only of a sum is it known how to make a whole value partial: zero everywhere but on one device.
  if (!all.made || reduction == Reduction::sum) add_delay(delays, all);
}

std::vector<Delay> delays_of(const OpContext& op, const Hints& hints) {
  std::vector<Delay> delays;
  for (size_t i = 0; i < op.rule->inputs.size(); ++i)
    if (takes_part(*op.rule, i))
      for (const ShardingRef& sharding : hints[i])
        if (sharding->partial) delays_of(op, hints, sharding->partial, sharding->reduction, delays);
  return delays;
}

void add(const OpContext& op, Strategy strategy, const Topology& topology, Choices& choices) {
  if (ChoiceRef choice = choice_of(op, std::move(strategy), topology)) choices.push_back(std::move(choice));
}

Choices make(const OpContext& op, const Hints& hints, const Topology& topology) {
  const std::vector<Strategy> whole = candidates(op, hints);
  const std::vector<Delay> delays = delays_of(op, hints);
  Choices choices;
  const auto add_delayed = [&](bool made) {
    for (const Strategy& base : whole)
      for (const Delay& delay : delays) {
        if (delay.made != made || (base.used() & delay.atoms)) continue;
        Strategy strategy = base;
        strategy.partial = delay.atoms;
        strategy.reduction = delay.reduction;
        strategy.carriers = delay.carriers;
        add(op, std::move(strategy), topology, choices);
      }
  };
  add_delayed(false);  // first: wins where costs are equal
  for (const Strategy& strategy : whole) add(op, strategy, topology, choices);
  add_delayed(true);
  internal_check(!choices.empty(), "no strategy for " + op.call->op);
  return choices;
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

std::vector<Delay> all_delays(const OpContext& op, AtomSet atoms) {
  constexpr Reduction kAll[] = {Reduction::sum,  Reduction::max, Reduction::min,
                                Reduction::prod, Reduction::any, Reduction::all};
  std::vector<Delay> delays;
  for (Reduction reduction : kAll) {
    Hints hints(op.num_tensors());
    for (size_t i = 0; i < op.rule->inputs.size(); ++i) {
      Sharding partial = *replicated(op.mesh, op.type(i).shape.size());
      partial.partial = atoms;
      partial.reduction = reduction;
      hints[i] = {intern(std::move(partial), op.type(i).shape)};
    }
    delays_of(op, hints, atoms, reduction, delays);
  }
  return delays;
}

ChoiceRef choice_of(const OpContext& op, Strategy strategy, const Topology& topology) {
  auto placement = place(op, strategy);
  if (!placement) return nullptr;
  const int64_t compute = compute_ns(op, strategy, topology);
  return std::make_shared<const Choice>(Choice{std::move(strategy), std::move(*placement), compute});
}

const Choices& ChoiceTable::of(const OpContext& op, const Hints& hints) {
  auto& bucket = entries_[hash_of(*op.call, hints)];
  for (const auto& entry : bucket)
    if (entry->hints == hints && (entry->call == op.call || *entry->call == *op.call)) return entry->choices;
  bucket.push_back(std::make_unique<Entry>(Entry{op.call, hints, make(op, hints, topology_)}));
  return bucket.back()->choices;
}

}  // namespace spmdx
