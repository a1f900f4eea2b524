// SPDX-License-Identifier: Apache-2.0
// What kernels give where meta kernels say something else.
#pragma once
#include "bridge/backend/shard_device.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {

using Results = std::vector<std::vector<Meta>>;  // per result of the schema its tensors

enum class Where : uint8_t { everywhere, on_the_cpu };  // elsewhere meta kernels are right
inline bool holds(Where where) { return where == Where::everywhere || shard_device().is_cpu(); }

}  // namespace spmdx::bridge
