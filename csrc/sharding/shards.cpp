// SPDX-License-Identifier: Apache-2.0
// Which box of a value each device holds, and which devices hold the same.
#include "sharding/shards.h"

#include "base/error.h"

namespace spmdx {

Box local_box(const Sharding& sharding, const Shape& shape, int64_t position) {
  internal_check(sharding.dims.size() == shape.size(), "a sharding whose rank is not that of the value");
  Box box(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) box[i] = local_range(*sharding.mesh, sharding.dims[i], shape[i], position);
  return box;
}

Shape local_shape(const Sharding& sharding, const Shape& shape, int64_t position) {
  Shape local;
  local.reserve(shape.size());
  for (const Range& range : local_box(sharding, shape, position)) local.push_back(range.extent);
  return local;
}

int64_t max_local_numel(const Sharding& sharding, const Shape& shape) { return numel(local_shape(sharding, shape, 0)); }

int64_t bytes_on_a_device(const TensorType& type, const ShardingRef& sharding) {
  const int64_t elements = sharding ? max_local_numel(*sharding, type.shape) : numel(type.shape);
  return elements * itemsize(type.dtype);
}

int64_t num_distinct(const Mesh& mesh, SubAxisSet used) { return mesh.group_size(used); }

int64_t distinct_index(const Mesh& mesh, SubAxisSet used, int64_t position) {
  int64_t index = 0;
  for (size_t i = 0; i < mesh.sub_axes().size(); ++i) {
    const auto sub_axis = static_cast<SubAxisId>(i);
    if (used >> i & 1) index = index * mesh.sub_axis_size(sub_axis) + mesh.digit(position, sub_axis);
  }
  return index;
}

int64_t representative(const Mesh& mesh, SubAxisSet used, int64_t index) {
  int64_t position = 0;
  for (size_t i = mesh.sub_axes().size(); i-- > 0;) {
    if (!(used >> i & 1)) continue;
    const SubAxis& sub_axis = mesh.sub_axes()[i];
    position += index % sub_axis.size * sub_axis.stride;
    index /= sub_axis.size;
  }
  return position;
}

}  // namespace spmdx
