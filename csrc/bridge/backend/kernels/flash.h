// SPDX-License-Identifier: Apache-2.0
// Scaled dot product attention of whole sequences, by the kernel that the shard device has for it.
#pragma once
#include "bridge/backend/kernels/attention.h"

namespace spmdx::bridge {

// Computes attention on the device of the operands.
Attended flash(const Attention& of);
// The gradients of query, key and value; `result` is what `flash` has given.
std::array<at::Tensor, 3> flash_backward(const Attention& of, const at::Tensor& grad, const Attended& result);

}  // namespace spmdx::bridge
