// SPDX-License-Identifier: Apache-2.0
// Permutes: moves among the states that cut every dim into the pieces it has now.
#include <utility>

#include "sharding/cuts.h"
#include "sharding/reshard/space.h"

namespace spmdx {
namespace {

// With at most so many tokens, permutes lead to every arrangement of equal sizes; with more, straight to the goal.
constexpr size_t kMaxPermutedTokens = 4;

}  // namespace

// Chooses the sub-axes of `dim` and of those after it so that every dim falls into the pieces it has now; `cuts` is
// what is left to choose for `dim`.
void ReshardSpace::fill_permutes(const ReshardState& state, ReshardState& next, size_t dim, int64_t cuts,
                                 SubAxisSet free, const EmitStep& emit) const {
  if (cuts == 1) {
    for (DimSharding& cut : variants(dim, state.dims[dim], next.dims[dim].sub_axes)) {
      const bool even = shape_[dim] % (this->cuts(cut) * cut.tile * state.dims[dim].tile) == 0;
      if (!even && pieces(mesh_, cut, shape_[dim]) != pieces(mesh_, state.dims[dim], shape_[dim])) continue;
      DimSharding kept = std::exchange(next.dims[dim], std::move(cut));
      if (dim + 1 < state.dims.size()) {
        next.dims[dim + 1] = {};
        fill_permutes(state, next, dim + 1, this->cuts(state.dims[dim + 1]), free, emit);
      } else if (next != state) {
        emit({Collective::collective_permute, 0, 0, 1, next});
      }
      next.dims[dim] = std::move(kept);
    }
    return;
  }
  for (const SubAxisList& token : tokens_) {
    const SubAxisSet set = sub_axis_set(token);
    const int64_t size = mesh_.group_size(set);
    if ((set & ~free) || cuts % size) continue;
    SubAxisList& sub_axes = next.dims[dim].sub_axes;
    sub_axes.append(token);
    fill_permutes(state, next, dim, cuts / size, free & ~set, emit);
    next.dims[dim].sub_axes.shorten(next.dims[dim].sub_axes.size() - token.size());
  }
}

void ReshardSpace::permutes(const ReshardState& state, const EmitStep& emit) const {
  if (state.dims.empty()) return;
  const int64_t bytes = local_bytes(state);
  const EmitStep complete = [&](ReshardStep step) {
    for (size_t i = 0; i < state.dims.size(); ++i)
      if (step.to.dims[i] != state.dims[i])
        step.sub_axes |= sub_axis_set(step.to.dims[i].sub_axes) | sub_axis_set(state.dims[i].sub_axes);
    emit(move(step.kind, step.sub_axes, bytes, std::move(step.to)));
  };
  ReshardState next = state;
  if (tokens_.size() <= kMaxPermutedTokens && scope_ != ReshardScope::towards) {
    next.dims[0] = {};
    return fill_permutes(state, next, 0, cuts(state.dims[0]), sub_axes_ & ~state.partial, complete);
  }
  if (state.dims == goal_.dims || (dim_sub_axes(goal_) & state.partial)) return;
  for (size_t i = 0; i < state.dims.size(); ++i) {
    if (state.dims[i] == goal_.dims[i]) continue;
    if (cuts(state.dims[i]) != cuts(goal_.dims[i]) ||
        pieces(mesh_, state.dims[i], shape_[i]) != pieces(mesh_, goal_.dims[i], shape_[i]))
      return;
  }
  next.dims = goal_.dims;
  complete({Collective::collective_permute, 0, 0, 1, std::move(next)});
}

}  // namespace spmdx
