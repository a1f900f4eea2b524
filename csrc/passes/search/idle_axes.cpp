// SPDX-License-Identifier: Apache-2.0
// Idle axes: a product takes each cut that no tensor suggests, and its neighbours follow; kept is the best.
#include "passes/search/idle_axes.h"

#include <algorithm>

#include "passes/settings/limits.h"

namespace spmdx {

bool IdleAxes::run() {
  std::vector<NodeId> products;
  double all = 0, repeated = 0;
  for (NodeId node = 0; node < graph_.nodes.size(); ++node) {
    if (!contracts(*assignment_.context(node).rule)) continue;
    const auto time = static_cast<double>(assignment_.choice(node).compute_ns);
    all += time;
    if (!assignment_.repeats(node)) continue;
    repeated += time * (1 - 1 / static_cast<double>(graph_.mesh->group_size(assignment_.unused(node))));
    products.push_back(node);
  }
  if (repeated <= kLimits.repeated_share * all) return false;
  std::stable_sort(products.begin(), products.end(), [&](NodeId a, NodeId b) {
    return assignment_.choice(a).compute_ns > assignment_.choice(b).compute_ns;
  });
  bool better = false;
  for (const NodeId node : products)
    if (assignment_.repeats(node)) better |= try_product(node);  // it may have followed another one
  return better;
}

void IdleAxes::take(NodeId node, const ChoiceRef& choice) {
  const ChoiceRef old = assignment_.choice_ref(node);
  assignment_.decide(node, choice);
  Steps steps;
  chain_.tell_neighbours(node, *old, steps);
  chain_.spread_out(std::move(steps), Spread::all, {node});
}

uint64_t IdleAxes::likeness(NodeId node) const {
  uint64_t h = graph_.nodes[node].call->hash;
  for (const ShardingRef& sharding : assignment_.choice(node).placement.inputs)
    h = hash_combine(h, reinterpret_cast<uintptr_t>(sharding.get()));
  return h;
}

bool IdleAxes::try_product(NodeId node) {
  int& failures = failures_[likeness(node)];
  if (failures >= kLimits.failures) return false;
  const Chain::Before since = chain_.before();
  // What products save must be more than what moves cost: without their weight, and without what else is shared out.
  const auto helps = [&] {
    return assignment_.total() < since.total && assignment_.moves_and_products() < since.moves_and_products;
  };
  ChoiceRef best;
  int64_t least = since.total;
  for (const ChoiceRef& choice : assignment_.idle_choices(node)) {
    take(node, choice);
    if (helps() && assignment_.total() < least) {
      best = choice;
      least = assignment_.total();
    }
    assignment_.undo(since.mark);
  }
  failures = best ? 0 : failures + 1;
  if (best) take(node, best);
  return chain_.keep(since, best && helps());
}

}  // namespace spmdx
