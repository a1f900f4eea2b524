// SPDX-License-Identifier: Apache-2.0
// What the bindings share: Python's handles of meshes and shardings, tensor checks, and waits that Ctrl-C ends.
#pragma once
#include <string>
#include <vector>

#include "bridge/tensor.h"
#include "sharding/sharding.h"
#include "sharding/spec.h"

namespace spmdx::bind {

struct MeshHandle {
  MeshRef mesh;
};
struct ShardingHandle {
  ShardingRef sharding = nullptr;                // interned: lives as long as the process
  std::shared_ptr<const PartitionSpec> written;  // what the user wrote, where that says more
};

// The lazy tensor behind `tensor`. Throws ShardingError naming `what` for a tensor of another device.
bridge::LazyTensor& require_lazy(const at::Tensor& tensor, const char* what);

// Data that holds exactly what `tensor` shows, views included; flushes what is pending. Does not wait for it.
DataRef settle(const at::Tensor& tensor);

// The sharding of `tensor`, planning what is pending and running nothing. Null: nothing known.
ShardingRef sharding_of(const at::Tensor& tensor);

}  // namespace spmdx::bind
