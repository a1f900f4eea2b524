// SPDX-License-Identifier: Apache-2.0
// Neighbours of a strategy that no tensor suggests: with some sub-axes elsewhere, or with more of them.
#include <algorithm>

#include "passes/strategy/strategy.h"

namespace spmdx {
namespace {

// `now` without the cuts by any of these sub-axes.
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

// The sub-axes outside of `used`: of all axes together, and of each alone if there are several.
std::vector<std::vector<SubAxisId>> unused_axes(const Mesh& mesh, SubAxisSet used) {
  std::vector<std::vector<SubAxisId>> groups(1);
  for (size_t axis = 0; axis < mesh.axes().size(); ++axis) {
    std::vector<SubAxisId> idle = mesh.sub_axes_of_axis(static_cast<int>(axis));
    std::erase_if(idle, [&](SubAxisId sub_axis) { return used >> sub_axis & 1; });
    if (idle.empty()) continue;
    groups[0].insert(groups[0].end(), idle.begin(), idle.end());
    groups.push_back(std::move(idle));
  }
  if (groups.size() == 2) groups.pop_back();
  return groups;
}

}  // namespace

std::vector<Strategy> idle_strategies(const OpContext& op, const Strategy& now) {
  std::vector<Strategy> result;
  for (const std::vector<SubAxisId>& sub_axes : unused_axes(*op.mesh, now.used())) {
    for (size_t f = 0; f < now.cuts.size() && !sub_axes.empty(); ++f) {
      const Factor& factor = op.rule->factors[f];
      if (factor.kind != FactorKind::pass || !may_cut(op, factor)) continue;
      Strategy strategy = now;
      std::vector<SubAxisId>& cut = strategy.cuts[f].sub_axes;
      cut.insert(cut.end(), sub_axes.begin(), sub_axes.end());
      if (is_legal(*op.mesh, strategy.cuts[f], factor.size)) result.push_back(std::move(strategy));
    }
  }
  return result;
}

std::vector<Strategy> neighbour_strategies(const OpContext& op, const Strategy& now,
                                           const std::vector<SubAxisId>& sub_axes) {
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
