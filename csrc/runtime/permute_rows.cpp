// SPDX-License-Identifier: Apache-2.0
// Rows that change places between devices: each target row is copied from the shard that holds its source.
#include "runtime/permute_rows.h"

#include "base/error.h"

namespace spmdx {
namespace {

// A value in one layout, seen along the dim whose rows move.
struct Rows {
  Shape shape;
  const Sharding& layout;
  int64_t dim;

  Range range_at(int64_t position) const { return local_range(*layout.mesh, layout.dims[dim], shape[dim], position); }
  size_t shard_at(int64_t position) const {
    return layout.used() ? static_cast<size_t>(distinct_index(*layout.mesh, layout.used(), position)) : 0;
  }
};

// The device that holds `row` among those that differ from `position` along the dim's atoms only.
int64_t holder(const Rows& rows, int64_t position, int64_t row) {
  const Mesh& mesh = *rows.layout.mesh;
  const AtomSet along = atom_set(rows.layout.dims[rows.dim].atoms), others = rows.layout.used() & ~along;
  const int64_t base = others ? representative(mesh, others, distinct_index(mesh, others, position)) : 0;
  for (int64_t i = 0; i < num_distinct(mesh, along); ++i) {
    const int64_t candidate = base + representative(mesh, along, i);
    const Range range = rows.range_at(candidate);
    if (row >= range.start && row < range.start + range.extent) return candidate;
  }
  throw InternalError("no device holds row " + std::to_string(row) + " of a value");
}

// Neighbouring rows of one shard that stay neighbours.
struct Run {
  size_t shard = 0;
  int64_t source = 0;  // in the shard
  int64_t target = 0;
  int64_t extent = 0;
};

std::vector<Run> runs_of(const Rows& rows, const int64_t* sources, int64_t count, int64_t position) {
  std::vector<Run> runs;
  for (int64_t r = 0; r < count;) {
    const int64_t source = sources[r];
    if (source < 0) {
      ++r;
      continue;
    }
    const int64_t from = holder(rows, position, source);
    const Range range = rows.range_at(from);
    Run run{rows.shard_at(from), source - range.start, r, 0};
    while (r < count && sources[r] == source + run.extent && run.source + run.extent < range.extent) ++run.extent, ++r;
    runs.push_back(run);
  }
  return runs;
}

BufferRef make_shard(Backend& backend, DType dtype, const Rows& from, const Rows& to, const RowMap& map,
                     const Shards& shards, int64_t position) {
  const Shape shape = local_shape(to.layout, to.shape, position);
  const Range mine = to.range_at(position);
  if (numel(shape) == 0) return backend.empty(dtype, shape);
  const std::vector<Run> runs = runs_of(from, map.sources.data() + mine.start, mine.extent, position);
  Box box;
  for (int64_t extent : shape) box.push_back({0, extent});
  if (runs.size() == 1 && runs[0].extent == mine.extent) {
    box[from.dim] = {runs[0].source, runs[0].extent};
    return backend.narrow(shards.at(runs[0].shard), box);
  }
  BufferRef whole = backend.identity(dtype, shape, Reduction::sum);
  for (const Run& run : runs) {
    box[from.dim] = {run.source, run.extent};
    std::vector<int64_t> starts(shape.size(), 0);
    starts[from.dim] = run.target;
    backend.copy_box(whole, starts, shards.at(run.shard), box);
  }
  return whole;
}

}  // namespace

Shards permute_rows(Backend& backend, const TensorType& type, const Shards& shards, ShardingRef from, ShardingRef to,
                    const RowMap& map) {
  Shape shape = type.shape;
  shape[map.dim] = static_cast<int64_t>(map.sources.size());
  const Rows source{type.shape, *from, map.dim}, target{shape, *to, map.dim};
  const AtomSet used = to->used();
  Shards result;
  for (int64_t i = 0; i < (used ? num_distinct(*to->mesh, used) : 1); ++i)
    result.push_back(
        make_shard(backend, type.dtype, source, target, map, shards, used ? representative(*to->mesh, used, i) : 0));
  return result;
}

}  // namespace spmdx
