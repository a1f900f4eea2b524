// SPDX-License-Identifier: Apache-2.0
// Cuts: how one dim is cut, its sub-axes seen as whole axes and parts of axes.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "sharding/box.h"
#include "sharding/mesh.h"

namespace spmdx {

// How one dim is cut: sub-axes major → minor. Consecutive sub-axes that make up a whole axis cut it at once
// (chunk = tile · ceil(d / tile / n), as torch.chunk does for tile 1); sub-axes of a part of an
// axis only where they divide evenly.
struct DimSharding {
  SubAxisList sub_axes;
  int64_t tile = 1;
  bool operator==(const DimSharding&) const = default;
  bool empty() const { return sub_axes.empty(); }
};
inline uint64_t hash_combine(uint64_t h, const DimSharding& dim) {
  h = hash_combine(h, static_cast<uint64_t>(dim.tile));
  for (SubAxisId sub_axis : dim.sub_axes) h = hash_combine(h, sub_axis + 1);
  return h;
}

// An axis seen as [pre, size, rest], of which the middle is meant. Whole when `size` is the axis' size.
struct AxisRef {
  int axis = 0;
  int64_t pre = 1;
  int64_t size = 1;
  bool whole = true;
  bool operator==(const AxisRef&) const = default;
};

// Consecutive sub-axes that are consecutive parts of one axis are one reference.
std::vector<AxisRef> axis_refs(const Mesh& mesh, const SubAxisList& sub_axes);
SubAxisList sub_axes_of(const Mesh& mesh, const AxisRef& ref);

// "model" or "model:(1)2".
std::string str(const Mesh& mesh, const AxisRef& ref);
// Names of axes for a set of sub-axes, whole axes by name and parts in Shardy's notation: "model:(1)2".
std::vector<std::string> axis_names(const Mesh& mesh, const SubAxisList& sub_axes);
// The sub-axes such a text means; empty for a whole axis of size 1. Throws ShardingError: unknown axis, a part that the
// axis' prime factors do not have.
SubAxisList parse_axis(const Mesh& mesh, std::string_view text);

// Elements in the first of the `parts` pieces of `extent` elements.
inline int64_t chunk_size(int64_t extent, int64_t tile, int64_t parts) {
  const int64_t units = (extent + tile - 1) / tile;
  return tile * ((units + parts - 1) / parts);
}

// Whether every piece of `coarse` is the union of the pieces of `fine`, whose sub-axes begin with those of `coarse`:
// then a slice leads from coarse to fine, and a gather of the other sub-axes back.
bool refines(const Mesh& mesh, const DimSharding& fine, const DimSharding& coarse, int64_t size);

// What the device at `position` holds of a dim.
Range local_range(const Mesh& mesh, const DimSharding& dim, int64_t size, int64_t position);

// The pieces of a dim in the order of its sub-axes, first sub-axis most significant.
std::vector<Range> pieces(const Mesh& mesh, const DimSharding& dim, int64_t size);

// Whether the cut is expressible: parts of an axis divide evenly. Whole axes always are.
bool is_legal(const Mesh& mesh, const DimSharding& dim, int64_t size);
// Whether every device holds the same under both.
bool same_cuts(const Mesh& mesh, const DimSharding& a, const DimSharding& b, int64_t size);

}  // namespace spmdx
