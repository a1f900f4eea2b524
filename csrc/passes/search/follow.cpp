// SPDX-License-Identifier: Apache-2.0
// Follow: decisions become a precedent, and a precedent becomes decisions.
#include <algorithm>

#include "passes/precedent/precedent.h"
#include "passes/search/assignment.h"
#include "passes/search/search.h"
#include "passes/settings/limits.h"

namespace spmdx {
namespace {

bool has_tiles(const Strategy& strategy) {
  return std::any_of(strategy.cuts.begin(), strategy.cuts.end(), [](const DimSharding& cut) { return cut.tile != 1; });
}

// Whether they cut the same factors by the same sub-axes, whatever the tiles.
bool cut_alike(const Strategy& a, const Strategy& b) {
  return a.partial == b.partial && a.reduction == b.reduction && a.partial_operands == b.partial_operands &&
         std::ranges::equal(a.cuts, b.cuts,
                            [](const DimSharding& x, const DimSharding& y) { return x.sub_axes == y.sub_axes; });
}

// The choice of a node that does as the strategy says; null where none can. Nodes before it are decided.
ChoiceRef choice_like(Assignment& assignment, NodeId node, const Strategy& strategy) {
  if (!has_tiles(strategy))
    if (ChoiceRef choice = assignment.choice_with(node, strategy)) return choice;
  for (const ChoiceRef& choice : assignment.choices(node))
    if (cut_alike(choice->strategy, strategy)) return choice;
  return nullptr;
}

// For how many costs changes of what is followed are worth asking, by those that were asked for to find it.
int64_t second_thoughts(int64_t costs) {
  const bool small = costs < kLimits.costs_of_a_small_search;
  const auto share = static_cast<int64_t>(kLimits.second_thoughts * static_cast<double>(costs));
  return small ? costs / 2 : std::max(share, kLimits.least_second_thoughts);
}

}  // namespace

void note_decisions(Precedent& precedent, const Graph& searched, const Decisions& decisions) {
  std::vector<const Strategy*> strategies;
  for (const ChoiceRef& choice : decisions.choices) strategies.push_back(&choice->strategy);
  note_strategies(precedent, searched, strategies);
  precedent.transient = decisions.transient;
  precedent.costs_asked += decisions.effort.costs_asked;
}

std::optional<Decisions> decide_like(const Precedent& precedent, bool equal, const Graph& graph,
                                     const CompileOptions& options) {
  if (!is_like(precedent, graph)) return std::nullopt;
  const bool is_counted = options.gather_budget != 0 && options.gather_budget != kNoLimit;
  if (is_counted && !equal) return std::nullopt;  // what fits in the budget depends on sizes
  Assignment assignment(graph, options, precedent.transient);
  choose_greedily(assignment, [&](NodeId node) -> ChoiceRef {
    const Strategy& strategy = precedent.strategies[precedent.of_nodes[node]];
    return equal ? assignment.choice_with(node, strategy) : choice_like(assignment, node, strategy);
  });
  const auto followed = static_cast<double>(assignment.total());
  if (!equal) improve_briefly(assignment, second_thoughts(precedent.costs_asked));
  if (static_cast<double>(assignment.total()) < (1 - kLimits.other_answer) * followed) return std::nullopt;
  return decisions_of(assignment, precedent.transient);
}

}  // namespace spmdx
