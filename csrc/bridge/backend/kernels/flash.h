// SPDX-License-Identifier: Apache-2.0
// Scaled dot product attention of whole sequences, by what the place of the shards has for it.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>

namespace spmdx::bridge {

// [batch, heads, rows, …]; keys and values may have fewer heads, each of which serves some of the queries'.
struct Attention {
  at::Tensor query, key, value;
  std::optional<at::Tensor> mask;  // added to the scores
  std::optional<double> scale;     // 1 / √width
  bool causal = false;             // query i sees the keys up to i
};

struct Attended {
  at::Tensor out, logsumexp;  // a row that sees no key has 0 in both
};

Attended flash(const Attention& of);
// Of query, key and value.
std::array<at::Tensor, 3> flash_backward(const Attention& of, const at::Tensor& grad, const Attended& result);

}  // namespace spmdx::bridge
