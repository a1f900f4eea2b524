// SPDX-License-Identifier: Apache-2.0
// Heads of keys and values, repeated for queries; their gradients, summed.
#include "bridge/backend/kernels/attention.h"

#include <ATen/Functions.h>

namespace spmdx::bridge {

using at::Tensor;

Tensor spread(const Tensor& keys, int64_t heads) {
  return keys.size(1) == heads ? keys : keys.repeat_interleave(heads / keys.size(1), 1);
}

Tensor gathered(const Tensor& grads, int64_t heads) {
  return grads.size(1) == heads ? grads : grads.unflatten(1, {heads, -1}).sum(2);
}

}  // namespace spmdx::bridge
