// SPDX-License-Identifier: Apache-2.0
// Attention by PyTorch's fused kernels for GPUs: FlashAttention in 16 bits, the memory-efficient one in f32.
#pragma once
#include "bridge/backend/kernels/attention.h"

namespace spmdx::bridge {

// Null where no fused kernel takes these operands, or this GPU has none.
std::optional<Attended> fused_attention(const Attention& of);
// The same for gradients. `result` may come from any kernel.
std::optional<std::array<at::Tensor, 3>> fused_attention_backward(const Attention& of, const at::Tensor& grad,
                                                                  const Attended& result);

}  // namespace spmdx::bridge
