// SPDX-License-Identifier: Apache-2.0
// Index tensors that point into a dim of which a part is here.
#pragma once
#include <ATen/core/Tensor.h>

namespace spmdx::bridge {

// Indices into [start, start + extent) counted from `start`; all others become `elsewhere`.
at::Tensor in_window(const at::Tensor& indices, int64_t start, int64_t extent, int64_t elsewhere);
// True where an index is not in [start, start + extent).
at::Tensor outside_window(const at::Tensor& indices, int64_t start, int64_t extent);

// Raises IndexError as eager does if an index is not in [least, total); on an accelerator an assertion fails later.
// `what` names the op in the message.
void check_indices(const at::Tensor& indices, int64_t least, int64_t total, const char* what);

}  // namespace spmdx::bridge
