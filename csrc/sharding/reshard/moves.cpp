// SPDX-License-Identifier: Apache-2.0
// The moves of the reshard planner: what each kind may do to a state, and the bytes a device receives by it.
#include <algorithm>
#include <utility>

#include "sharding/cuts.h"
#include "sharding/reshard/missing.h"
#include "sharding/reshard/space.h"

namespace spmdx {
namespace {

// With more tokens than these, a gather of several dims at once goes straight to what the goal keeps.
constexpr size_t kMaxChosenTokens = 4;

ReshardState without_partial(ReshardState state, SubAxisSet sub_axes) {
  state.partial &= ~sub_axes;
  if (state.partial == 0) state.reduction = Reduction::none;
  return state;
}

}  // namespace

void ReshardSpace::slices(const ReshardState& state, const EmitStep& emit) const {
  const SubAxisSet cut = dim_sub_axes(state);
  if (cut == 0 && dim_sub_axes(start_) != 0) return;  // a value is never gathered whole in order to be cut again
  for (size_t dim = 0; dim < state.dims.size(); ++dim) {
    const DimSharding& now = state.dims[dim];
    const DimSharding& goal = goal_.dims[dim];
    if (now != goal && now.sub_axes == goal.sub_axes && same_cuts(mesh_, now, goal, shape_[dim])) {
      ReshardState next = state;
      next.dims[dim] = goal;
      emit({Collective::slice, 0, 0, 1, std::move(next)});
    }
    for (const SubAxisList& run : appendable(state, dim, sub_axes_ & ~cut & ~state.partial)) {
      SubAxisList sub_axes = now.sub_axes;
      sub_axes.append(run);
      for (DimSharding& finer : variants(dim, now, std::move(sub_axes))) {
        if (!refines(mesh_, finer, now, shape_[dim])) continue;
        ReshardState next = state;
        next.dims[dim] = std::move(finer);
        emit(move(Collective::slice, sub_axis_set(run), 0, std::move(next)));
      }
    }
  }
}

// all_gather of a suffix of a dim, and all_to_all of it to the end of another dim.
void ReshardSpace::suffix_moves(const ReshardState& state, const EmitStep& emit) const {
  const int64_t bytes = local_bytes(state);
  for (size_t dim = 0; dim < state.dims.size(); ++dim) {
    const DimSharding& now = state.dims[dim];
    for (size_t start : suffix_starts(state, dim)) {
      const auto middle = now.sub_axes.begin() + static_cast<std::ptrdiff_t>(start);
      const SubAxisList suffix(middle, now.sub_axes.end());
      const SubAxisSet set = sub_axis_set(suffix);
      for (const DimSharding& coarser : variants(dim, now, {now.sub_axes.begin(), middle})) {
        if (!refines(mesh_, now, coarser, shape_[dim])) continue;
        ReshardState gathered = state;
        gathered.dims[dim] = coarser;
        emit(move(Collective::all_gather, set, local_bytes(gathered), gathered));
        for (size_t other = 0; other < state.dims.size(); ++other) {
          if (other == dim) continue;
          SubAxisList sub_axes = state.dims[other].sub_axes;
          sub_axes.append(suffix);
          if (scope_ == ReshardScope::towards && !is_prefix(sub_axes, goal_.dims[other].sub_axes)) continue;
          for (DimSharding& finer : variants(other, state.dims[other], std::move(sub_axes))) {
            if (!refines(mesh_, finer, state.dims[other], shape_[other])) continue;
            ReshardState next = gathered;
            next.dims[other] = std::move(finer);
            const int64_t larger = std::max(bytes, local_bytes(next));
            emit(move(Collective::all_to_all, set, larger, std::move(next)));
          }
        }
      }
    }
  }
}

// One all_gather of suffixes of two or more dims: the bytes of one after the other, the latency of one.
void ReshardSpace::joint_gathers(const ReshardState& state, ReshardState& next, size_t dim, SubAxisSet gathered,
                                 int dims, const EmitStep& emit) const {
  if (dim == state.dims.size()) {
    if (dims < 2) return;
    return emit(move(Collective::all_gather, gathered, local_bytes(next), next));
  }
  const DimSharding& now = state.dims[dim];
  next.dims[dim] = now;
  const bool all_choices = tokens_.size() <= kMaxChosenTokens;
  if (all_choices || is_prefix(now.sub_axes, goal_.dims[dim].sub_axes))
    joint_gathers(state, next, dim + 1, gathered, dims, emit);
  for (size_t start : suffix_starts(state, dim)) {
    // Among many tokens: down to what the goal keeps, or not at all.
    if (!all_choices && start != common_prefix(now.sub_axes, goal_.dims[dim].sub_axes)) continue;
    const auto middle = now.sub_axes.begin() + static_cast<std::ptrdiff_t>(start);
    const SubAxisSet set = sub_axis_set({middle, now.sub_axes.end()});
    for (DimSharding& coarser : variants(dim, now, {now.sub_axes.begin(), middle})) {
      if (!refines(mesh_, now, coarser, shape_[dim])) continue;
      next.dims[dim] = std::move(coarser);
      joint_gathers(state, next, dim + 1, gathered | set, dims + 1, emit);
    }
  }
  next.dims[dim] = now;
}

void ReshardSpace::reductions(const ReshardState& state, const EmitStep& emit) const {
  const int64_t bytes = local_bytes(state);
  for (size_t dim = 0; dim < state.dims.size(); ++dim) {
    std::vector<SubAxisList> runs = appendable(state, dim, state.partial);
    // Across levels: scattered over all fast links at once, to be summed over the slow ones next.
    for (SubAxisSet fast : fast_) {
      SubAxisList run = sub_axis_list(state.partial & fast);
      if (!run.empty() && !std::count(runs.begin(), runs.end(), run)) runs.push_back(std::move(run));
    }
    for (const SubAxisList& run : runs) {
      const SubAxisSet set = sub_axis_set(run);
      SubAxisList sub_axes = state.dims[dim].sub_axes;
      sub_axes.append(run);
      for (DimSharding& finer : variants(dim, state.dims[dim], std::move(sub_axes))) {
        if (!refines(mesh_, finer, state.dims[dim], shape_[dim])) continue;
        ReshardState next = without_partial(state, set);
        next.dims[dim] = std::move(finer);
        emit(move(Collective::reduce_scatter, set, bytes, std::move(next)));
      }
    }
  }
  // Sub-axes over which the goal is partial as well, by the same reduction: that sum need not be made.
  const SubAxisSet kept = state.reduction == goal_.reduction ? goal_.partial : 0, cut = dim_sub_axes(goal_);
  std::vector<SubAxisSet> sets = {state.partial, state.partial & ~kept, state.partial & ~cut,
                                  state.partial & ~kept & ~cut};
  for (const SubAxisList& token : tokens_) sets.push_back(sub_axis_set(token) & state.partial);
  for (SubAxisSet fast : fast_) sets.insert(sets.end(), {state.partial & fast, state.partial & ~fast});
  std::vector<SubAxisSet> done = {0};
  for (SubAxisSet set : sets) {
    if (std::count(done.begin(), done.end(), set)) continue;
    done.push_back(set);
    emit(all_reduce(state, set));
  }
}

ReshardStep ReshardSpace::all_reduce(const ReshardState& state, SubAxisSet sub_axes) const {
  return move(Collective::all_reduce, sub_axes, local_bytes(state), without_partial(state, sub_axes));
}

ReshardStep ReshardSpace::to_partial(const ReshardState& state) const {
  ReshardState next = state;
  next.partial = goal_.partial;
  next.reduction = goal_.reduction;
  return move(Collective::to_partial, goal_.partial & ~state.partial, 0, std::move(next));
}

// Sub-axes over which the goal is not partial must be reduced first.
bool ReshardSpace::may_go_direct(const ReshardState& state) const {
  if (state.dims == goal_.dims || (state.partial & ~goal_.partial)) return false;
  return state.partial == 0 || state.reduction == goal_.reduction;
}

ReshardStep ReshardSpace::direct(const ReshardState& state) const {
  ReshardState next = state;
  next.dims = goal_.dims;
  const Missing lacking = missing(mesh_, shape_, state.dims, goal_.dims);
  const SubAxisSet sub_axes = exchanging_sub_axes(mesh_, shape_, state.dims, goal_.dims);
  if (lacking.elements == 0) return {Collective::slice, sub_axes, 0, 1, std::move(next)};
  return {Collective::send_recv, sub_axes, lacking.elements * itemsize_, lacking.peers + 1, std::move(next)};
}

void ReshardSpace::steps(const ReshardState& state, ReshardAsk ask, const EmitStep& emit) const {
  slices(state, emit);
  if (ask.wire) {
    suffix_moves(state, emit);
    ReshardState next = state;
    joint_gathers(state, next, 0, 0, 0, emit);
    permutes(state, emit);
    if (state.partial != 0) reductions(state, emit);
  }
  const SubAxisSet added = goal_.partial & ~state.partial;
  const bool one_reduction = state.partial == 0 || state.reduction == goal_.reduction;
  if (added != 0 && (state.partial & ~goal_.partial) == 0 && (added & dim_sub_axes(state)) == 0 && one_reduction)
    emit(to_partial(state));
  if (!ask.direct || !may_go_direct(state)) return;
  if (ReshardStep step = direct(state); step.bytes > 0) emit(std::move(step));  // else slices lead there
}

}  // namespace spmdx
