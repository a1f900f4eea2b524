// SPDX-License-Identifier: Apache-2.0
// What a tensor of the device declares about itself, and the steps of views, which lead from one such layout to
// another.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/data/backend.h"

namespace spmdx::bridge {

// Declared (logical, eager-like) metadata of a tensor.
struct Meta {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  bool defined = true;
  // A view that shows the conjugate, or the negative, of memory: PyTorch's bits. The steps of such a tensor hold the op
  // itself, so that what is read or written through it is what it shows; the bits are for those who ask PyTorch.
  bool conjugate = false, negative = false;
};
using MetaRef = std::shared_ptr<const Meta>;

// One step of a view chain: the recorded call (its first operand is the source) and which result it is.
struct ViewStep {
  CallRef call;
  std::vector<Param> params;
  uint32_t result = 0;
  Meta in, out;
};
using ViewChain = std::shared_ptr<const std::vector<ViewStep>>;

Meta meta_of(const at::Tensor& tensor);
void set_bits(const at::Tensor& tensor, const Meta& meta);
// The layout of a whole: `meta` at offset 0, showing memory as it is.
MetaRef share(Meta meta);
TensorType type_of(const Meta& meta);
at::Tensor meta_tensor(const Meta& meta);
// A meta tensor laid out as `empty_like` lays it.
at::Tensor dense_like(const at::Tensor& tensor);

}  // namespace spmdx::bridge
