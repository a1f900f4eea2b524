// SPDX-License-Identifier: Apache-2.0
// Sharding: which sub-axes cut each dim of a value, and over which sub-axes it is partial.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sharding/cuts.h"

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

}  // namespace spmdx
