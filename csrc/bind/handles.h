// SPDX-License-Identifier: Apache-2.0
// What the files of this folder share: Python's handles of meshes and shardings, and the data behind a tensor.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "bridge/tensor/tensor.h"
#include "sharding/sharding.h"
#include "sharding/spec.h"

namespace spmdx::bind {

struct MeshHandle {
  MeshRef mesh;
};
struct ShardingHandle {
  ShardingRef sharding = nullptr;                // interned, so equal shardings are equal pointers
  std::shared_ptr<const PartitionSpec> written;  // what the user wrote, on a mesh with axes of size 1; else null
  std::shared_ptr<const std::string> schedule = nullptr;  // of a tensor of a pipelined model; else null
};

// The lazy tensor behind `tensor`. For a tensor of another device it throws ShardingError, whose message names `what`.
bridge::LazyTensor& require_lazy(const at::Tensor& tensor, const char* what);

// Data that holds exactly the elements that `tensor` shows, also if it is a view. Ends the recorded graph if they are
// pending, and does not wait for the step.
DataRef computed_data(const at::Tensor& tensor);

// The sharding of `tensor`, or null if it has none. Plans the recorded graph if the tensor is pending, and runs
// nothing.
ShardingRef sharding_of(const at::Tensor& tensor);

// The dtype of this name. Throws ShardingError.
inline DType dtype_named(const std::string& text) {
  if (const auto dtype = parse_dtype(text)) return *dtype;
  throw ShardingError("'" + text + "' is no dtype. Expected a name like 'f32'. Write 'f32' or 'bf16'.");
}
inline std::set<DType> dtypes_named(const std::vector<std::string>& texts) {
  std::set<DType> found;
  for (const std::string& text : texts) found.insert(dtype_named(text));
  return found;
}

}  // namespace spmdx::bind
