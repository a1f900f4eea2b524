// SPDX-License-Identifier: Apache-2.0
// Ops of manual regions that ATen has no word for.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace spmdx::bridge {

// Part i of `dim` becomes part sources[i], or zeros where that is negative. REQUIRES: a lazy tensor, one source for
// each part. Not differentiable by itself.
at::Tensor permute_rows(const at::Tensor& tensor, int64_t dim, const std::vector<int64_t>& sources);

}  // namespace spmdx::bridge
