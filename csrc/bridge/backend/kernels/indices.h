// SPDX-License-Identifier: Apache-2.0
// Indices into a dim of which a part is here.
#pragma once
#include <ATen/core/Tensor.h>

namespace spmdx::bridge {

// Indices of elements [start, start + extent), counted from start, and `elsewhere` for all others.
at::Tensor in_window(const at::Tensor& indices, int64_t start, int64_t extent, int64_t elsewhere);
at::Tensor outside_window(const at::Tensor& indices, int64_t start, int64_t extent);

// Raises IndexError as eager does where an index is not in [least, total).
void check_indices(const at::Tensor& indices, int64_t least, int64_t total, const char* what);

}  // namespace spmdx::bridge
