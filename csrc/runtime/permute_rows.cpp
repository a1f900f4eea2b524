// SPDX-License-Identifier: Apache-2.0
// Rows that change places between devices: each target row is copied from the shard that holds its source.
#include "runtime/permute_rows.h"

#include "base/error.h"

namespace spmdx {
namespace {

// One value in one layout, seen along the dim whose rows move.
struct Rows {
  const TensorType& type;
  const Sharding& layout;
  const RowMap& map;

  const DimSharding& dim() const { return layout.dims[map.dim]; }
  Range range_at(int64_t position) const { return local_range(*layout.mesh, dim(), type.shape[map.dim], position); }
  size_t shard_at(int64_t position) const {
    return layout.used() ? static_cast<size_t>(distinct_index(*layout.mesh, layout.used(), position)) : 0;
  }
};

// The device that holds `row` among those that differ from `position` along the dim's atoms only.
int64_t holder(const Rows& rows, int64_t position, int64_t row) {
  const Mesh& mesh = *rows.layout.mesh;
  const AtomSet along = atom_set(rows.dim().atoms), others = rows.layout.used() & ~along;
  const int64_t base = others ? representative(mesh, others, distinct_index(mesh, others, position)) : 0;
  for (int64_t i = 0; i < num_distinct(mesh, along); ++i) {
    const int64_t candidate = base + representative(mesh, along, i);
    const Range range = rows.range_at(candidate);
    if (row >= range.start && row < range.start + range.extent) return candidate;
  }
  throw InternalError("no device holds row " + std::to_string(row) + " of " + str(rows.type, &rows.layout));
}

BufferRef make_shard(Backend& backend, const Rows& rows, const Shards& shards, int64_t position) {
  const Shape shape = local_shape(rows.layout, rows.type.shape, position);
  const Range mine = rows.range_at(position);
  if (numel(shape) == 0) return backend.empty(rows.type.dtype, shape);
  BufferRef whole = mine.extent == 1 ? nullptr : backend.identity(rows.type.dtype, shape, Reduction::sum);
  for (int64_t r = 0; r < mine.extent; ++r) {
    const int64_t source = rows.map.sources[mine.start + r];
    if (source < 0) continue;
    const int64_t from = holder(rows, position, source);
    const BufferRef& shard = shards.at(rows.shard_at(from));
    if (!whole) return shard;  // its one row
    Box box;
    for (int64_t extent : shape) box.push_back({0, extent});
    box[rows.map.dim] = {source - rows.range_at(from).start, 1};
    std::vector<int64_t> starts(shape.size(), 0);
    starts[rows.map.dim] = r;
    backend.copy_box(whole, starts, shard, box);
  }
  return whole ? whole : backend.identity(rows.type.dtype, shape, Reduction::sum);
}

}  // namespace

Shards permute_rows(Backend& backend, const TensorType& type, const Shards& shards, ShardingRef layout,
                    const RowMap& map) {
  const Rows rows{type, *layout, map};
  const AtomSet used = layout->used();
  Shards result;
  for (int64_t i = 0; i < (used ? num_distinct(*layout->mesh, used) : 1); ++i)
    result.push_back(make_shard(backend, rows, shards, used ? representative(*layout->mesh, used, i) : 0));
  return result;
}

}  // namespace spmdx
