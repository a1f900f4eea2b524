// SPDX-License-Identifier: Apache-2.0
// Shardy: sub-axes are axes, and parts of them, in its notation.
#include "emit/mlir/shardy.h"

#include "base/error.h"
#include "sharding/notation.h"

namespace spmdx::emit {
namespace {

std::string quoted(const std::string& name) { return "\"" + name + "\""; }

// "model" or "model":(1)2.
std::string axis(const Mesh& mesh, const AxisRef& ref) {
  const std::string name = mesh.axes()[ref.axis].name;
  return quoted(name) + str(mesh, ref).substr(name.size());
}

std::string axes(const Mesh& mesh, const DimSharding& dim) {
  std::string text;
  for (const AxisRef& ref : axis_refs(mesh, dim.sub_axes)) text += (text.empty() ? "" : ", ") + axis(mesh, ref);
  return "{" + text + "}";
}

// Why there is no such attribute, and how to mend it; empty where there is one.
std::string reason(const TensorType& type, const Sharding& sharding, bool whole_shards) {
  if (sharding.partial) return "is a partial result. Expected one that is reduced. Annotate what is computed from it.";
  if (!sharding.place.plain())
    return "lies on a stage, or on hosts. Expected a value on all devices of the mesh. Export the model without stages "
           "or offloading.";
  for (size_t d = 0; d < sharding.dims.size(); ++d) {
    if (sharding.dims[d].tile != 1)
      return "is cut in tiles along dim " + std::to_string(d) +
             ". Expected shards that follow each other. Annotate it "
             "without a tile.";
    const int64_t parts = sharding.mesh->group_size(sub_axis_set(sharding.dims[d].sub_axes));
    if (whole_shards && type.shape[d] % parts)
      return "has shards of different sizes along dim " + std::to_string(d) +
             ". Expected a size that is a multiple of " + std::to_string(parts) +
             " where values come in or go out. Pad it, or cut another dim.";
  }
  return "";
}

}  // namespace

std::string sdy_mesh(const Mesh& mesh) {
  std::string text;
  for (const Axis& axis : mesh.axes())
    text += (text.empty() ? "" : ", ") + quoted(axis.name) + "=" + std::to_string(axis.size);
  return "sdy.mesh @mesh = <[" + text + "]>";
}

bool sdy_has(const TensorType& type, const ShardingRef& sharding, bool whole_shards) {
  return reason(type, *sharding, whole_shards).empty();
}

std::string sdy_sharding(const TensorType& type, const ShardingRef& sharding, bool whole_shards) {
  if (const std::string why = reason(type, *sharding, whole_shards); !why.empty())
    throw ShardingError("Shardy has no attribute for " + str(type, sharding) + ": it " + why);
  std::string text;
  for (const DimSharding& dim : sharding->dims) text += (text.empty() ? "" : ", ") + axes(*sharding->mesh, dim);
  return "#sdy.sharding<@mesh, [" + text + "]>";
}

}  // namespace spmdx::emit
