// SPDX-License-Identifier: Apache-2.0
// The moves of the reshard planner: what each kind may do to a layout, and the bytes a device receives by it.
#include "sharding/reshard_space.h"

#include <algorithm>
#include <utility>

#include "sharding/cuts.h"

namespace spmdx {
namespace {

// Permutes to every arrangement of equal sizes only among so few tokens; else straight to the goal.
constexpr size_t kMaxPermutedTokens = 4;
// On larger meshes the missing boxes are measured from the start only.
constexpr int64_t kMaxMeasuredMesh = 64;

AtomSet dim_atoms(const Layout& layout) {
  AtomSet set = 0;
  for (const DimSharding& dim : layout.dims) set |= atom_set(dim.atoms);
  return set;
}

bool is_prefix(const std::vector<AtomId>& prefix, const std::vector<AtomId>& list) {
  return prefix.size() <= list.size() && std::equal(prefix.begin(), prefix.end(), list.begin());
}

size_t common_prefix(const std::vector<AtomId>& a, const std::vector<AtomId>& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

// Where an atom is in a layout: an atom and its successor with "next" places are treated alike there.
struct Place {
  int dim = -1;  // -1 nowhere, -2 partial
  size_t slot = 0;
};
std::vector<Place> places(const Layout& layout, size_t count) {
  std::vector<Place> out(count);
  for (AtomId atom : atom_list(layout.partial)) out[atom].dim = -2;
  for (size_t dim = 0; dim < layout.dims.size(); ++dim)
    for (size_t slot = 0; slot < layout.dims[dim].atoms.size(); ++slot)
      out[layout.dims[dim].atoms[slot]] = {static_cast<int>(dim), slot};
  return out;
}
bool alike(const Place& a, const Place& b) { return a.dim == b.dim && (a.dim < 0 || a.slot + 1 == b.slot); }

}  // namespace

std::string key(const Layout& layout) {
  std::string out(reinterpret_cast<const char*>(&layout.partial), sizeof layout.partial);
  out += static_cast<char>(layout.reduction);
  for (const DimSharding& dim : layout.dims) {
    out += static_cast<char>(dim.atoms.size());
    out.append(dim.atoms.begin(), dim.atoms.end());
    out.append(reinterpret_cast<const char*>(&dim.granule), sizeof dim.granule);
  }
  return out;
}

ReshardSpace::ReshardSpace(int64_t itemsize, const Shape& shape, const Sharding& from, const Sharding& to, Scope scope)
    : mesh_(*from.mesh),
      shape_(shape),
      itemsize_(itemsize),
      scope_(scope),
      start_{from.dims, from.partial, from.reduction},
      goal_{to.dims, to.partial, to.reduction},
      atoms_(from.used() | to.used()),
      token_of_(mesh_.atoms().size()) {
  const std::vector<Place> before = places(start_, token_of_.size()), after = places(goal_, token_of_.size());
  for (AtomId atom : atom_list(atoms_)) {
    const bool joins = scope != Scope::atoms && !tokens_.empty() && tokens_.back().back() + 1 == atom &&
                       mesh_.atoms()[atom].axis == mesh_.atoms()[atom - 1].axis &&
                       alike(before[atom - 1], before[atom]) && alike(after[atom - 1], after[atom]);
    if (!joins) tokens_.emplace_back();
    tokens_.back().push_back(atom);
    token_of_[atom] = tokens_.size() - 1;
  }
  runs_ = tokens_;
  for (size_t axis = 0; axis < mesh_.axes().size(); ++axis) {
    std::vector<AtomId> whole = mesh_.axis_atoms(static_cast<int>(axis));
    const AtomSet set = atom_set(whole);
    if (whole.empty() || (set & ~atoms_) || std::count(runs_.begin(), runs_.end(), whole)) continue;
    runs_.push_back(std::move(whole));
  }
}

int64_t ReshardSpace::cuts(const DimSharding& dim) const { return mesh_.group_size(atom_set(dim.atoms)); }

int64_t ReshardSpace::local_bytes(const Layout& layout) const {
  int64_t bytes = itemsize_;
  for (size_t i = 0; i < shape_.size(); ++i) bytes *= local_range(mesh_, layout.dims[i], shape_[i], 0).extent;
  return bytes;
}

// `atoms` as a legal cut of the dim, with every granule that occurs for it, normalised as interning does.
std::vector<DimSharding> ReshardSpace::variants(size_t dim, const DimSharding& now, std::vector<AtomId> atoms) const {
  std::vector<DimSharding> out;
  for (int64_t granule : {int64_t{1}, now.granule, start_.dims[dim].granule, goal_.dims[dim].granule}) {
    DimSharding cut{atoms, granule};
    if (granule != 1 && same_cuts(mesh_, cut, {atoms, 1}, shape_[dim])) cut.granule = 1;
    if (std::count(out.begin(), out.end(), cut) || !is_legal(mesh_, cut, shape_[dim])) continue;
    out.push_back(std::move(cut));
  }
  return out;
}

// Where a suffix of the dim's atoms may begin: between tokens.
std::vector<size_t> ReshardSpace::suffix_starts(const Layout& layout, size_t dim) const {
  const std::vector<AtomId>& atoms = layout.dims[dim].atoms;
  const size_t kept = scope_ == Scope::towards ? common_prefix(atoms, goal_.dims[dim].atoms) : 0;
  std::vector<size_t> starts;
  for (size_t i = kept; i < atoms.size(); ++i)
    if (i == 0 || token_of_[atoms[i - 1]] != token_of_[atoms[i]]) starts.push_back(i);
  return starts;
}

// Runs of `free` atoms that may be appended to the dim.
std::vector<std::vector<AtomId>> ReshardSpace::appendable(const Layout& layout, size_t dim, AtomSet free) const {
  std::vector<std::vector<AtomId>> out;
  const std::vector<AtomId>&now = layout.dims[dim].atoms, &goal = goal_.dims[dim].atoms;
  if (now.size() < goal.size() && is_prefix(now, goal)) {
    std::vector<AtomId> rest(goal.begin() + static_cast<std::ptrdiff_t>(now.size()), goal.end());
    if ((atom_set(rest) & ~free) == 0) out.push_back(std::move(rest));
  }
  for (const std::vector<AtomId>& run : runs_) {
    if ((atom_set(run) & ~free) || std::count(out.begin(), out.end(), run)) continue;
    std::vector<AtomId> longer = now;
    longer.insert(longer.end(), run.begin(), run.end());
    if (scope_ == Scope::towards && !is_prefix(longer, goal)) continue;
    out.push_back(run);
  }
  return out;
}

void ReshardSpace::slices(const Layout& layout, const Emit& emit) const {
  const AtomSet cut = dim_atoms(layout);
  if (cut == 0 && dim_atoms(start_) != 0) return;  // what was cut is never gathered whole to be cut again
  for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
    const DimSharding& now = layout.dims[dim];
    const DimSharding& goal = goal_.dims[dim];
    if (now != goal && now.atoms == goal.atoms && same_cuts(mesh_, now, goal, shape_[dim])) {
      Layout next = layout;
      next.dims[dim] = goal;
      emit({Collective::slice, 0, 0, std::move(next)});
    }
    for (const std::vector<AtomId>& run : appendable(layout, dim, atoms_ & ~cut & ~layout.partial)) {
      std::vector<AtomId> atoms = now.atoms;
      atoms.insert(atoms.end(), run.begin(), run.end());
      for (DimSharding& finer : variants(dim, now, std::move(atoms))) {
        if (!refines(mesh_, finer, now, shape_[dim])) continue;
        Layout next = layout;
        next.dims[dim] = std::move(finer);
        emit({Collective::slice, atom_set(run), 0, std::move(next)});
      }
    }
  }
}

// all_gather of a suffix of a dim, and all_to_all of it to the end of another dim.
void ReshardSpace::suffix_moves(const Layout& layout, const Emit& emit) const {
  const int64_t bytes = local_bytes(layout);
  for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
    const DimSharding& now = layout.dims[dim];
    for (size_t start : suffix_starts(layout, dim)) {
      const auto middle = now.atoms.begin() + static_cast<std::ptrdiff_t>(start);
      const std::vector<AtomId> suffix(middle, now.atoms.end());
      const AtomSet set = atom_set(suffix);
      const int64_t group = mesh_.group_size(set);
      for (const DimSharding& coarser : variants(dim, now, {now.atoms.begin(), middle})) {
        if (!refines(mesh_, now, coarser, shape_[dim])) continue;
        Layout gathered = layout;
        gathered.dims[dim] = coarser;
        emit({Collective::all_gather, set, wire_bytes(Collective::all_gather, local_bytes(gathered), group), gathered});
        for (size_t other = 0; other < layout.dims.size(); ++other) {
          if (other == dim) continue;
          std::vector<AtomId> atoms = layout.dims[other].atoms;
          atoms.insert(atoms.end(), suffix.begin(), suffix.end());
          if (scope_ == Scope::towards && !is_prefix(atoms, goal_.dims[other].atoms)) continue;
          for (DimSharding& finer : variants(other, layout.dims[other], std::move(atoms))) {
            if (!refines(mesh_, finer, layout.dims[other], shape_[other])) continue;
            Layout next = gathered;
            next.dims[other] = std::move(finer);
            const int64_t larger = std::max(bytes, local_bytes(next));
            emit({Collective::all_to_all, set, wire_bytes(Collective::all_to_all, larger, group), std::move(next)});
          }
        }
      }
    }
  }
}

// One all_gather of suffixes of two or more dims: the bytes of one after the other, the latency of one.
void ReshardSpace::joint_gathers(const Layout& layout, Layout& next, size_t dim, AtomSet gathered, int dims,
                                 const Emit& emit) const {
  if (dim == layout.dims.size()) {
    if (dims < 2) return;
    const int64_t group = mesh_.group_size(gathered);
    return emit({Collective::all_gather, gathered, wire_bytes(Collective::all_gather, local_bytes(next), group), next});
  }
  const DimSharding& now = layout.dims[dim];
  next.dims[dim] = now;
  const bool all_choices = tokens_.size() <= kMaxPermutedTokens;
  if (all_choices || is_prefix(now.atoms, goal_.dims[dim].atoms))
    joint_gathers(layout, next, dim + 1, gathered, dims, emit);
  for (size_t start : suffix_starts(layout, dim)) {
    // Among many tokens: down to what the goal keeps, or not at all.
    if (!all_choices && start != common_prefix(now.atoms, goal_.dims[dim].atoms)) continue;
    const auto middle = now.atoms.begin() + static_cast<std::ptrdiff_t>(start);
    const AtomSet set = atom_set({middle, now.atoms.end()});
    for (DimSharding& coarser : variants(dim, now, {now.atoms.begin(), middle})) {
      if (!refines(mesh_, now, coarser, shape_[dim])) continue;
      next.dims[dim] = std::move(coarser);
      joint_gathers(layout, next, dim + 1, gathered | set, dims + 1, emit);
    }
  }
  next.dims[dim] = now;
}

// Chooses the atoms of `dim` and of those after it so that every dim falls into the pieces it has now; `cuts` is what
// is left to choose for `dim`.
void ReshardSpace::fill_permutes(const Layout& layout, Layout& next, size_t dim, int64_t cuts, AtomSet free,
                                 const Emit& emit) const {
  if (cuts == 1) {
    for (DimSharding& cut : variants(dim, layout.dims[dim], next.dims[dim].atoms)) {
      const bool even = shape_[dim] % (this->cuts(cut) * cut.granule * layout.dims[dim].granule) == 0;
      if (!even && pieces(mesh_, cut, shape_[dim]) != pieces(mesh_, layout.dims[dim], shape_[dim])) continue;
      DimSharding kept = std::exchange(next.dims[dim], std::move(cut));
      if (dim + 1 < layout.dims.size()) {
        next.dims[dim + 1] = {};
        fill_permutes(layout, next, dim + 1, this->cuts(layout.dims[dim + 1]), free, emit);
      } else if (next != layout) {
        emit({Collective::collective_permute, 0, 0, next});
      }
      next.dims[dim] = std::move(kept);
    }
    return;
  }
  for (const std::vector<AtomId>& token : tokens_) {
    const AtomSet set = atom_set(token);
    const int64_t size = mesh_.group_size(set);
    if ((set & ~free) || cuts % size) continue;
    std::vector<AtomId>& atoms = next.dims[dim].atoms;
    atoms.insert(atoms.end(), token.begin(), token.end());
    fill_permutes(layout, next, dim, cuts / size, free & ~set, emit);
    next.dims[dim].atoms.resize(next.dims[dim].atoms.size() - token.size());
  }
}

void ReshardSpace::permutes(const Layout& layout, const Emit& emit) const {
  if (layout.dims.empty()) return;
  const int64_t bytes = local_bytes(layout);
  const Emit complete = [&](Step step) {
    for (size_t i = 0; i < layout.dims.size(); ++i)
      if (step.to.dims[i] != layout.dims[i])
        step.atoms |= atom_set(step.to.dims[i].atoms) | atom_set(layout.dims[i].atoms);
    step.bytes = wire_bytes(Collective::collective_permute, bytes, mesh_.group_size(step.atoms));
    emit(std::move(step));
  };
  Layout next = layout;
  if (tokens_.size() <= kMaxPermutedTokens && scope_ != Scope::towards) {
    next.dims[0] = {};
    return fill_permutes(layout, next, 0, cuts(layout.dims[0]), atoms_ & ~layout.partial, complete);
  }
  if (layout.dims == goal_.dims || (dim_atoms(goal_) & layout.partial)) return;
  for (size_t i = 0; i < layout.dims.size(); ++i) {
    if (layout.dims[i] == goal_.dims[i]) continue;
    if (cuts(layout.dims[i]) != cuts(goal_.dims[i]) ||
        pieces(mesh_, layout.dims[i], shape_[i]) != pieces(mesh_, goal_.dims[i], shape_[i]))
      return;
  }
  next.dims = goal_.dims;
  complete({Collective::collective_permute, 0, 0, std::move(next)});
}

void ReshardSpace::reductions(const Layout& layout, const Emit& emit) const {
  const int64_t bytes = local_bytes(layout);
  const auto without = [&](AtomSet atoms) {
    Layout next = layout;
    next.partial &= ~atoms;
    if (next.partial == 0) next.reduction = Reduction::none;
    return next;
  };
  for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
    for (const std::vector<AtomId>& run : appendable(layout, dim, layout.partial)) {
      const AtomSet set = atom_set(run);
      std::vector<AtomId> atoms = layout.dims[dim].atoms;
      atoms.insert(atoms.end(), run.begin(), run.end());
      for (DimSharding& finer : variants(dim, layout.dims[dim], std::move(atoms))) {
        if (!refines(mesh_, finer, layout.dims[dim], shape_[dim])) continue;
        Layout next = without(set);
        next.dims[dim] = std::move(finer);
        const int64_t wire = wire_bytes(Collective::reduce_scatter, bytes, mesh_.group_size(set));
        emit({Collective::reduce_scatter, set, wire, std::move(next)});
      }
    }
  }
  const AtomSet kept = layout.reduction == goal_.reduction ? goal_.partial : 0, cut = dim_atoms(goal_);
  std::vector<AtomSet> sets = {layout.partial, layout.partial & ~kept, layout.partial & ~cut,
                               layout.partial & ~kept & ~cut};
  for (const std::vector<AtomId>& token : tokens_) sets.push_back(atom_set(token) & layout.partial);
  std::vector<AtomSet> done = {0};
  for (AtomSet set : sets) {
    if (std::count(done.begin(), done.end(), set)) continue;
    done.push_back(set);
    const int64_t wire = wire_bytes(Collective::all_reduce, bytes, mesh_.group_size(set));
    emit({Collective::all_reduce, set, wire, without(set)});
  }
}

void ReshardSpace::to_partial(const Layout& layout, const Emit& emit) const {
  const AtomSet missing = goal_.partial & ~layout.partial;
  if (missing == 0 || (layout.partial & ~goal_.partial) || (missing & dim_atoms(layout))) return;
  if (layout.partial != 0 && layout.reduction != goal_.reduction) return;
  Layout next = layout;
  next.partial = goal_.partial;
  next.reduction = goal_.reduction;
  emit({Collective::to_partial, missing, 0, std::move(next)});
}

void ReshardSpace::direct(const Layout& layout, const Emit& emit) const {
  if (layout.partial != 0 || layout.dims == goal_.dims) return;
  if (mesh_.size() > kMaxMeasuredMesh && layout.dims != start_.dims) return;
  int64_t most = 0;
  for (int64_t position = 0; position < mesh_.size(); ++position) {
    int64_t wanted = 1, present = 1;
    for (size_t i = 0; i < shape_.size(); ++i) {
      const Range old = local_range(mesh_, layout.dims[i], shape_[i], position);
      const Range now = local_range(mesh_, goal_.dims[i], shape_[i], position);
      wanted *= now.extent;
      const int64_t end = std::min(old.start + old.extent, now.start + now.extent);
      present *= std::max<int64_t>(0, end - std::max(old.start, now.start));
    }
    most = std::max(most, wanted - present);
  }
  Layout next = layout;
  next.dims = goal_.dims;
  emit({Collective::send_recv, dim_atoms(layout) | dim_atoms(goal_), most * itemsize_, std::move(next)});
}

void ReshardSpace::steps(const Layout& layout, bool with_direct, const Emit& emit) const {
  slices(layout, emit);
  suffix_moves(layout, emit);
  Layout next = layout;
  joint_gathers(layout, next, 0, 0, 0, emit);
  permutes(layout, emit);
  if (layout.partial != 0) reductions(layout, emit);
  to_partial(layout, emit);
  if (with_direct) direct(layout, emit);
}

}  // namespace spmdx
