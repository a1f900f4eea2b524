// SPDX-License-Identifier: Apache-2.0
// Scaled dot product attention: its operands and results, and heads of keys that serve several heads of queries.
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

}  // namespace spmdx::bridge
