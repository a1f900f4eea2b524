// SPDX-License-Identifier: Apache-2.0
// Assembly: boxes of the old shards that meet a box of the new layout.
#include "runtime/collective/assembly.h"

#include <algorithm>

#include "base/error.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

// The part of a position that the digits of `sub_axes` make up.
int64_t restrict_to(const Mesh& mesh, SubAxisSet sub_axes, int64_t position) {
  return representative(mesh, sub_axes, distinct_index(mesh, sub_axes, position));
}

// The digits of the target's position that do not tell shards apart: neighbours have them in common.
int64_t idle_digits(const Sharding& from, const Sharding& to, int64_t position) {
  const int64_t idle =
      *from.mesh == *to.mesh ? restrict_to(*from.mesh, from.mesh->all_sub_axes() & ~from.used(), position) : 0;
  return moved_to(*from.mesh, from.place, idle);
}

// The part of the wanted box that the source holds; false where there is none.
bool intersect(const Box& source, const Box& wanted, BoxCopy& piece) {
  for (size_t d = 0; d < wanted.size(); ++d) {
    const Range both = overlap(source[d], wanted[d]);
    if (both.extent == 0) return false;
    piece.box.push_back({both.start - source[d].start, both.extent});
    piece.starts.push_back(both.start - wanted[d].start);
  }
  return true;
}

int64_t shard_at(const Sharding& layout, int64_t position) {
  return distinct_index(*layout.mesh, layout.used(), position);
}

// Digits of disjoint sets of sub-axes add up to a position.
Summand find_summand(const Shape& shape, const Sharding& from, const Box& wanted, int64_t digits) {
  const Mesh& mesh = *from.mesh;
  const SubAxisSet cuts = from.dim_sub_axes();
  Summand summand;
  int64_t found = 0;
  const int64_t needed = volume(wanted), sources = num_distinct(mesh, cuts);
  for (int64_t i = 0; i < sources && found < needed; ++i) {
    const int64_t position = digits + representative(mesh, cuts, i);
    const Box box = local_box(from, shape, position);
    BoxCopy piece;
    if (!intersect(box, wanted, piece)) continue;
    piece.source = shard_at(from, position);
    piece.position = position;
    piece.whole = volume(piece.box) == volume(box);
    found += volume(piece.box);
    summand.push_back(std::move(piece));
  }
  internal_check(found == needed, "the shards of a value do not cover it");
  return summand;
}

Assembly relayout_at(const Relayout& relayout, int64_t position) {
  const Sharding &from = *relayout.from, &to = *relayout.to;
  internal_check(*from.mesh == *to.mesh || !(from.partial | to.partial), "a sum between two meshes");
  internal_check(!(from.partial & to.partial) || from.reduction == to.reduction,
                 "a collective that changes the reduction of a partial value");
  const Mesh& mesh = *from.mesh;
  const SubAxisSet kept = from.partial & to.partial, dropped = from.partial & ~to.partial,
                   added = to.partial & ~from.partial;
  Assembly assembly;
  const Box wanted = local_box(to, relayout.shape, position);
  for (const Range& range : wanted) assembly.shape.push_back(range.extent);
  assembly.identity = restrict_to(mesh, added, position) != 0;
  if (assembly.identity || numel(assembly.shape) == 0) return assembly;
  const int64_t fixed = idle_digits(from, to, position) + restrict_to(mesh, kept, position);
  const int64_t terms = num_distinct(mesh, dropped);
  for (int64_t t = 0; t < terms; ++t)
    assembly.summands.push_back(find_summand(relayout.shape, from, wanted, fixed + representative(mesh, dropped, t)));
  return assembly;
}

// ---- rows that change places -------------------------------------------------------------------------

// The device that holds `row` among those that differ from `position` along the dim's sub-axes only.
int64_t holder_of(const Relayout& relayout, int64_t position, int64_t row) {
  const Sharding& from = *relayout.from;
  const Mesh& mesh = *from.mesh;
  const DimSharding& dim = from.dims[relayout.rows.dim];
  const SubAxisSet along = sub_axis_set(dim.sub_axes);
  const int64_t base = restrict_to(mesh, mesh.all_sub_axes() & ~along, position);
  for (int64_t i = 0; i < num_distinct(mesh, along); ++i) {
    const int64_t candidate = base + representative(mesh, along, i);
    const Range range = local_range(mesh, dim, relayout.shape[relayout.rows.dim], candidate);
    if (range.holds(row)) return candidate;
  }
  throw InternalError("no device holds row " + std::to_string(row) + " of a value");
}

// Neighbouring rows of one shard that stay neighbours, from row `first` of the target on; moves `first` past them.
BoxCopy take_run(const Relayout& relayout, const Shape& target, const std::vector<int64_t>& sources, int64_t& first,
                 int64_t position) {
  const Sharding& from = *relayout.from;
  const int64_t dim = relayout.rows.dim, start = first, row = sources[first];
  const int64_t holder = holder_of(relayout, position, row);
  const Range range = local_range(*from.mesh, from.dims[dim], relayout.shape[dim], holder);
  Range taken{row - range.start, 0};
  while (first < static_cast<int64_t>(sources.size()) && sources[first] == row + taken.extent &&
         taken.start + taken.extent < range.extent)
    ++taken.extent, ++first;
  BoxCopy piece;
  piece.source = shard_at(from, holder);
  piece.position = holder;
  for (const int64_t extent : target) piece.box.push_back({0, extent});
  piece.box[dim] = taken;
  piece.starts.assign(target.size(), 0);
  piece.starts[dim] = start;
  piece.whole = taken.extent == range.extent;
  return piece;
}

Assembly rows_at(const Relayout& relayout, int64_t position) {
  const Sharding& to = *relayout.to;
  const RowMap& rows = relayout.rows;
  internal_check(*relayout.from->mesh == *to.mesh, "rows between two meshes");
  Shape global = relayout.shape;
  global[rows.dim] = static_cast<int64_t>(rows.sources.size());
  Assembly assembly;
  assembly.shape = local_shape(to, global, position);
  if (numel(assembly.shape) == 0) return assembly;
  const Range mine = local_range(*to.mesh, to.dims[rows.dim], global[rows.dim], position);
  const auto begin = rows.sources.begin() + mine.start;
  const std::vector<int64_t> sources(begin, begin + mine.extent);
  Summand& summand = assembly.summands.emplace_back();
  for (int64_t row = 0; row < mine.extent;) {
    if (sources[row] < 0)
      assembly.holes = true, ++row;
    else
      summand.push_back(take_run(relayout, assembly.shape, sources, row, position));
  }
  return assembly;
}

}  // namespace

Assembly assembly_at(const Relayout& relayout, int64_t position) {
  return relayout.rows.dim < 0 ? relayout_at(relayout, position) : rows_at(relayout, position);
}

}  // namespace spmdx
