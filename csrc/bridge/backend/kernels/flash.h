// SPDX-License-Identifier: Apache-2.0
// Scaled dot product attention of whole sequences, by the kernel that the shard device has for it.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>

namespace spmdx::bridge {

// Tensors are [batch, heads, rows, width]. Keys and values may have fewer heads: each serves several heads of queries.
struct Attention {
  at::Tensor query, key, value;
  std::optional<at::Tensor> mask;  // added to the scores
  std::optional<double> scale;     // absent: 1 / √width
  bool causal = false;             // query i sees the keys up to i
};

struct Attended {
  at::Tensor out, logsumexp;  // a row that sees no key has 0 in both
};

// Repeats heads of keys, so that there is one for each of `heads` of queries.
at::Tensor spread(const at::Tensor& keys, int64_t heads);
// The gradient of heads that were repeated: the sum over their copies.
at::Tensor gathered(const at::Tensor& grads, int64_t heads);

// Computes attention on the device of the operands.
Attended flash(const Attention& of);
// The gradients of query, key and value; `result` is what `flash` has given.
std::array<at::Tensor, 3> flash_backward(const Attention& of, const at::Tensor& grad, const Attended& result);

}  // namespace spmdx::bridge
