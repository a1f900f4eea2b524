// SPDX-License-Identifier: Apache-2.0
// Sharding: which sub-axes cut each dim of a value, over which sub-axes it is partial, and where it is.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sharding/cuts.h"
#include "sharding/place.h"

namespace spmdx {

enum class Reduction : uint8_t { none, sum, max, min, prod, any, all };
std::string_view name(Reduction reduction);
std::optional<Reduction> parse_reduction(std::string_view text);

// Immutable once interned; compare interned shardings by pointer.
struct Sharding {
  MeshRef mesh;
  std::vector<DimSharding> dims;
  SubAxisSet partial = 0;
  Reduction reduction = Reduction::none;  // none exactly when partial == 0
  Place place = {};                       // whose axis is not among the sub-axes above

  bool operator==(const Sharding& other) const;
  SubAxisSet used() const;          // sub-axes of the dims and of the partial
  SubAxisSet dim_sub_axes() const;  // sub-axes of the dims
  bool replicated() const { return used() == 0; }
};
using ShardingRef = std::shared_ptr<const Sharding>;

// The one interned copy. REQUIRES: no sub-axis twice. Tiles are normalised against `shape`: 1 wherever the cuts are
// the same as those of tile 1, and for a dim that is not cut.
ShardingRef intern(Sharding sharding, const Shape& shape);
size_t shardings_kept();
ShardingRef replicated(const MeshRef& mesh, size_t rank);
// The same cuts elsewhere.
ShardingRef on(const ShardingRef& sharding, const Place& place);
// The same cuts on a stage along the axis of this name. Throws ShardingError where the axis cuts a dim.
ShardingRef at_stage(const ShardingRef& sharding, const std::string& axis, int64_t stage);
inline ShardingRef everywhere(const ShardingRef& sharding) { return on(sharding, {}); }  // null stays null

}  // namespace spmdx
