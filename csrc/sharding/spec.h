// SPDX-License-Identifier: Apache-2.0
// PartitionSpec: which axes cut each dim, as users write it.
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "sharding/sharding.h"

namespace spmdx {

// What users write. One entry per dim; an entry is a list of axis indices or names, empty for None.
using SpecAxis = std::variant<int64_t, std::string>;
struct PartitionSpec {
  std::vector<std::vector<SpecAxis>> entries;
  bool operator==(const PartitionSpec&) const = default;
};
std::string str(const PartitionSpec& spec);  // "('data', None)"

// Throws ShardingError in three sentences (what is wrong, what is expected, how to repair it), naming `tensor` (as "dim
// 1 of w"): wrong length, unknown name, index out of range or negative, an axis used twice.
ShardingRef to_sharding(const PartitionSpec& spec, const MeshRef& mesh, const Shape& shape, const std::string& tensor);
// Inverse of to_sharding; an axis of size 1 is never in it. Parts of axes print as "model:(1)2".
PartitionSpec to_spec(const Sharding& sharding);

}  // namespace spmdx
