// SPDX-License-Identifier: Apache-2.0
// Shifts: strategies that no tensor suggests.
#include <algorithm>

#include "passes/strategy/strategy.h"

namespace spmdx {
namespace {

// `now` without the cuts by any of these atoms.
Strategy without(const Strategy& now, AtomSet atoms) {
  Strategy rest = now;
  for (DimSharding& cut : rest.cuts)
    if (atom_set(cut.atoms) & atoms) cut = {};
  if (rest.partial & atoms) {
    rest.partial = 0;
    rest.reduction = Reduction::none;
    rest.carriers = ~uint64_t{0};
  }
  return rest;
}

}  // namespace

std::vector<Strategy> shifted(const OpContext& op, const Strategy& now, const std::vector<AtomId>& atoms) {
  const Strategy rest = without(now, atom_set(atoms));
  std::vector<Strategy> result;
  if (rest != now) result.push_back(rest);
  for (size_t f = 0; f < rest.cuts.size(); ++f) {
    const Factor& factor = op.rule->factors[f];
    if (!may_cut(op, factor) || !rest.cuts[f].empty()) continue;
    Strategy strategy = rest;
    strategy.cuts[f] = {atoms, 1};
    if (strategy != now && is_legal(*op.mesh, strategy.cuts[f], factor.size)) result.push_back(std::move(strategy));
  }
  return result;
}

}  // namespace spmdx
