// SPDX-License-Identifier: Apache-2.0
// The space the reshard planner searches: what moves as one, and which cuts of a dim there are.
#include "sharding/reshard/space.h"

#include <algorithm>
#include <utility>

#include "sharding/cuts.h"
#include "sharding/reshard/missing.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

// Where a sub-axis is in a state. A sub-axis and its successor in "next" places are treated alike there.
struct Slot {
  int dim = -1;  // -1 nowhere, -2 partial
  size_t slot = 0;
};
std::vector<Slot> slots(const ReshardState& state, size_t count) {
  std::vector<Slot> out(count);
  for (SubAxisId sub_axis : sub_axis_list(state.partial)) out[sub_axis].dim = -2;
  for (size_t dim = 0; dim < state.dims.size(); ++dim)
    for (size_t slot = 0; slot < state.dims[dim].sub_axes.size(); ++slot)
      out[state.dims[dim].sub_axes[slot]] = {static_cast<int>(dim), slot};
  return out;
}
bool alike(const Slot& a, const Slot& b) { return a.dim == b.dim && (a.dim < 0 || a.slot + 1 == b.slot); }

}  // namespace

SubAxisSet dim_sub_axes(const ReshardState& state) {
  SubAxisSet set = 0;
  for (const DimSharding& dim : state.dims) set |= sub_axis_set(dim.sub_axes);
  return set;
}

std::string key(const ReshardState& state) {
  std::string out(reinterpret_cast<const char*>(&state.partial), sizeof state.partial);
  out += static_cast<char>(state.reduction);
  for (const DimSharding& dim : state.dims) {
    out += static_cast<char>(dim.sub_axes.size());
    out.append(dim.sub_axes.begin(), dim.sub_axes.end());
    out.append(reinterpret_cast<const char*>(&dim.tile), sizeof dim.tile);
  }
  return out;
}

ReshardSpace::ReshardSpace(int64_t itemsize, const Shape& shape, const Sharding& from, const Sharding& to,
                           const std::vector<uint8_t>& levels, ReshardScope scope)
    : mesh_(*from.mesh),
      shape_(shape),
      itemsize_(itemsize),
      scope_(scope),
      start_{from.dims, from.partial, from.reduction},
      goal_{to.dims, to.partial, to.reduction},
      sub_axes_(from.used() | to.used()),
      token_of_(mesh_.sub_axes().size()) {
  const std::vector<Slot> before = slots(start_, token_of_.size()), after = slots(goal_, token_of_.size());
  for (SubAxisId sub_axis : sub_axis_list(sub_axes_)) {
    const bool joins = scope != ReshardScope::sub_axes && !tokens_.empty() && tokens_.back().back() + 1 == sub_axis &&
                       mesh_.sub_axes()[sub_axis].axis == mesh_.sub_axes()[sub_axis - 1].axis &&
                       levels[sub_axis - 1] == levels[sub_axis] && alike(before[sub_axis - 1], before[sub_axis]) &&
                       alike(after[sub_axis - 1], after[sub_axis]);
    if (!joins) tokens_.emplace_back();
    tokens_.back().push_back(sub_axis);
    token_of_[sub_axis] = tokens_.size() - 1;
  }
  const uint8_t last = levels.empty() ? 0 : *std::max_element(levels.begin(), levels.end());
  for (uint8_t level = 0; level < last; ++level) {
    SubAxisSet set = 0;
    for (size_t i = 0; i < levels.size(); ++i)
      if (levels[i] <= level) set |= SubAxisSet{1} << i;
    fast_.push_back(set);
  }
  runs_ = tokens_;
  for (size_t axis = 0; axis < mesh_.axes().size(); ++axis) {
    SubAxisList whole = mesh_.sub_axes_of_axis(static_cast<int>(axis));
    const SubAxisSet set = sub_axis_set(whole);
    if (whole.empty() || (set & ~sub_axes_) || std::count(runs_.begin(), runs_.end(), whole)) continue;
    runs_.push_back(std::move(whole));
  }
}

int64_t ReshardSpace::cuts(const DimSharding& dim) const { return mesh_.group_size(sub_axis_set(dim.sub_axes)); }

int64_t ReshardSpace::local_bytes(const ReshardState& state) const {
  int64_t bytes = itemsize_;
  for (size_t i = 0; i < shape_.size(); ++i) bytes *= local_range(mesh_, state.dims[i], shape_[i], 0).extent;
  return bytes;
}

// `sub_axes` as a legal cut of the dim, with every tile that occurs for it, normalised as interning does.
std::vector<DimSharding> ReshardSpace::variants(size_t dim, const DimSharding& now, SubAxisList sub_axes) const {
  std::vector<DimSharding> out;
  for (int64_t tile : {int64_t{1}, now.tile, start_.dims[dim].tile, goal_.dims[dim].tile}) {
    DimSharding cut{sub_axes, tile};
    if (tile != 1 && same_cuts(mesh_, cut, {sub_axes, 1}, shape_[dim])) cut.tile = 1;
    if (std::count(out.begin(), out.end(), cut) || !is_legal(mesh_, cut, shape_[dim])) continue;
    out.push_back(std::move(cut));
  }
  return out;
}

// Where a suffix of the dim's sub-axes may begin: between tokens.
std::vector<size_t> ReshardSpace::suffix_starts(const ReshardState& state, size_t dim) const {
  const SubAxisList& sub_axes = state.dims[dim].sub_axes;
  const size_t kept = scope_ == ReshardScope::towards ? common_prefix(sub_axes, goal_.dims[dim].sub_axes) : 0;
  std::vector<size_t> starts;
  for (size_t i = kept; i < sub_axes.size(); ++i)
    if (i == 0 || token_of_[sub_axes[i - 1]] != token_of_[sub_axes[i]]) starts.push_back(i);
  return starts;
}

// Runs of `free` sub-axes that may be appended to the dim.
std::vector<SubAxisList> ReshardSpace::appendable(const ReshardState& state, size_t dim, SubAxisSet free) const {
  std::vector<SubAxisList> out;
  const SubAxisList &now = state.dims[dim].sub_axes, &goal = goal_.dims[dim].sub_axes;
  if (now.size() < goal.size() && is_prefix(now, goal)) {
    SubAxisList rest(goal.begin() + static_cast<std::ptrdiff_t>(now.size()), goal.end());
    if ((sub_axis_set(rest) & ~free) == 0) out.push_back(std::move(rest));
  }
  for (const SubAxisList& run : runs_) {
    if ((sub_axis_set(run) & ~free) || std::count(out.begin(), out.end(), run)) continue;
    SubAxisList longer = now;
    longer.append(run);
    if (scope_ == ReshardScope::towards && !is_prefix(longer, goal)) continue;
    out.push_back(run);
  }
  return out;
}

// Where groups of g devices have sums to make, a device on average receives g − 1 terms for one g-th of the group's
// result, and the rest of its own part from others.
int64_t ReshardSpace::least_bytes(const ReshardState& state) const {
  if (may_go_direct(state)) return missing(mesh_, shape_, state.dims, goal_.dims).elements * itemsize_;
  const SubAxisSet summed = state.reduction == goal_.reduction ? state.partial & ~goal_.partial : state.partial;
  if (summed == 0) return 0;
  const int64_t group = mesh_.group_size(summed), parts = mesh_.group_size(summed & dim_sub_axes(goal_));
  const int64_t wanted = local_bytes(goal_), needed = std::min(wanted * parts, local_bytes(state));
  return needed / group * (group - 1) + std::max<int64_t>(0, wanted - (needed + group - 1) / group);
}

ReshardStep ReshardSpace::move(Collective kind, SubAxisSet sub_axes, int64_t local_bytes, ReshardState to) const {
  const int64_t group = mesh_.group_size(sub_axes);
  return {kind, sub_axes, wire_bytes(kind, local_bytes, group), group, std::move(to)};
}

}  // namespace spmdx
