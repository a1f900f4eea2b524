// SPDX-License-Identifier: Apache-2.0
// Neighbours of a strategy that no tensor suggests: with some sub-axes elsewhere, or nowhere.
#include <algorithm>

#include "passes/strategy/strategy.h"

namespace spmdx {
Strategy without(const Strategy& now, SubAxisSet sub_axes) {
  Strategy rest = now;
  for (DimSharding& cut : rest.cuts)
    if (sub_axis_set(cut.sub_axes) & sub_axes) cut = {};
  if (rest.partial & sub_axes) {
    rest.partial = 0;
    rest.reduction = Reduction::none;
    rest.partial_operands = ~uint64_t{0};
  }
  return rest;
}

std::vector<Strategy> neighbour_strategies(const OpContext& op, const Strategy& now, const SubAxisList& sub_axes) {
  const Strategy rest = without(now, sub_axis_set(sub_axes));
  std::vector<Strategy> result;
  if (rest != now) result.push_back(rest);
  for (size_t f = 0; f < rest.cuts.size(); ++f) {
    const Factor& factor = op.rule->factors[f];
    if (!may_cut(op, factor) || !rest.cuts[f].empty()) continue;
    Strategy strategy = rest;
    strategy.cuts[f] = {sub_axes, 1};
    if (strategy != now && is_legal(*op.mesh, strategy.cuts[f], factor.size)) result.push_back(std::move(strategy));
  }
  return result;
}

}  // namespace spmdx
