// SPDX-License-Identifier: Apache-2.0
// Shards: which box of a value each device holds, and which devices hold the same.
#pragma once
#include "sharding/box.h"
#include "sharding/sharding.h"

namespace spmdx {

// What the device at `position` holds of a value of this global shape.
Box local_box(const Sharding& sharding, const Shape& shape, int64_t position);
Shape local_shape(const Sharding& sharding, const Shape& shape, int64_t position);
// Elements on the device that holds most (position 0).
int64_t max_local_numel(const Sharding& sharding, const Shape& shape);

// Bytes of them, or of all of a value without a sharding.
int64_t bytes_on_a_device(const TensorType& type, const ShardingRef& sharding);

// Distinct shards: devices that agree on the used sub-axes hold the same data. Index = mixed radix of the
// digits of the used sub-axes, ascending sub-axis id, first sub-axis most significant.
int64_t num_distinct(const Mesh& mesh, SubAxisSet used);
int64_t distinct_index(const Mesh& mesh, SubAxisSet used, int64_t position);
// The position with that index whose other digits are 0.
int64_t representative(const Mesh& mesh, SubAxisSet used, int64_t index);

}  // namespace spmdx
