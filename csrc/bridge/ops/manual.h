// SPDX-License-Identifier: Apache-2.0
// Ops of manual regions (spmdx.shard_map) that ATen does not have.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace spmdx::bridge {

// A tensor whose part i of `dim` is part sources[i] of `tensor`, or zeros where that is negative. REQUIRES: a lazy
// tensor, one source for each part. Autograd does not see this op.
at::Tensor permute_rows(const at::Tensor& tensor, int64_t dim, const std::vector<int64_t>& sources);

}  // namespace spmdx::bridge
