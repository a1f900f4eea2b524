// SPDX-License-Identifier: Apache-2.0
// Sharding: which atoms cut each dim of a value, and over which atoms it is partial.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/types.h"
#include "sharding/mesh.h"

namespace spmdx {

enum class Reduction : uint8_t { none, sum, max, min, prod, any, all };
std::string_view name(Reduction reduction);
std::optional<Reduction> parse_reduction(std::string_view text);

// How one dim is cut: atoms major → minor. Consecutive atoms that make up a whole axis cut it at once
// (chunk = granule · ceil(d / granule / n), as torch.chunk does for granule 1); atoms of a part of an
// axis only where they divide evenly.
struct DimSharding {
  std::vector<AtomId> atoms;
  int64_t granule = 1;
  bool operator==(const DimSharding&) const = default;
  bool empty() const { return atoms.empty(); }
};

// Immutable once interned; compare interned shardings by pointer.
struct Sharding {
  MeshRef mesh;
  std::vector<DimSharding> dims;
  AtomSet partial = 0;
  Reduction reduction = Reduction::none;  // none exactly when partial == 0

  bool operator==(const Sharding& other) const;
  AtomSet used() const;       // atoms of the dims and of the partial
  AtomSet dim_atoms() const;  // atoms of the dims
  bool replicated() const { return used() == 0; }
};
using ShardingRef = std::shared_ptr<const Sharding>;

// The one interned copy. REQUIRES: no atom twice. Granules are normalised against `shape`: 1 wherever the cuts are
// the same as those of granule 1, and for a dim that is not cut.
ShardingRef intern(Sharding sharding, const Shape& shape);
size_t shardings_kept();
ShardingRef replicated(const MeshRef& mesh, size_t rank);

// Whether the cut is expressible: parts of an axis divide evenly. Whole axes always are.
bool is_legal(const Mesh& mesh, const DimSharding& dim, int64_t size);

// Half-open range of one dim, or a box of them.
struct Range {
  int64_t start = 0;
  int64_t extent = 0;
  bool operator==(const Range&) const = default;
};
using Box = std::vector<Range>;
int64_t volume(const Box& box);

// Part `index` of `count` of a dim, as torch.chunk cuts it.
Range part_of(int64_t size, int64_t count, int64_t index);

// What the device at `position` holds of a dim / of a value of this global shape.
Range local_range(const Mesh& mesh, const DimSharding& dim, int64_t size, int64_t position);
Box local_box(const Sharding& sharding, const Shape& shape, int64_t position);
Shape local_shape(const Sharding& sharding, const Shape& shape, int64_t position);
// Elements on the device that holds most (position 0).
int64_t max_local_numel(const Sharding& sharding, const Shape& shape);
bool same_cuts(const Mesh& mesh, const DimSharding& a, const DimSharding& b, int64_t size);

// Distinct shards: devices that agree on the used atoms hold the same data. Index = mixed radix of the
// digits of the used atoms, ascending atom id, first atom most significant.
int64_t num_distinct(const Mesh& mesh, AtomSet used);
int64_t distinct_index(const Mesh& mesh, AtomSet used, int64_t position);
// The position with that index whose other digits are 0.
int64_t representative(const Mesh& mesh, AtomSet used, int64_t index);

// What users write. One entry per dim; an entry is a list of axis indices or names, empty for None.
using SpecAxis = std::variant<int64_t, std::string>;
struct PartitionSpec {
  std::vector<std::vector<SpecAxis>> entries;
  bool operator==(const PartitionSpec&) const = default;
};
std::string str(const PartitionSpec& spec);  // "('data', None)"

// Throws ShardingError in three sentences (what, expected, mend), naming `tensor` (as "dim 1 of w"):
// wrong length, unknown name, index out of range or negative, an axis used twice.
ShardingRef to_sharding(const PartitionSpec& spec, const MeshRef& mesh, const Shape& shape, const std::string& tensor);
// Inverse of to_sharding; an axis of size 1 is never in it. Parts of axes print as "model:(1)2".
PartitionSpec to_spec(const Sharding& sharding);

// "f32[64@data, 128@(model,seq), 7]{partial sum: expert}"; null sharding prints the type alone.
// A granule g ≠ 1 prints as "128@data/g". Parts of axes as "128@model:(1)2".
std::string str(const TensorType& type, ShardingRef sharding);
// Parses what str prints, from `text` at `pos` (moved past it). Throws ShardingError.
std::pair<TensorType, ShardingRef> parse_type(std::string_view text, size_t& pos, const MeshRef& mesh);

}  // namespace spmdx
