// SPDX-License-Identifier: Apache-2.0
// What corrections of meta kernels have in common: results, and the devices where they apply.
#pragma once
#include "bridge/backend/shard_device.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {

using Results = std::vector<std::vector<Meta>>;  // the tensors of each result of the schema

enum class Where : uint8_t { everywhere, on_the_cpu };  // on_the_cpu: on accelerators meta kernels are right
// Whether a correction applies to the shard device.
inline bool holds(Where where) { return where == Where::everywhere || shard_device().is_cpu(); }

}  // namespace spmdx::bridge
