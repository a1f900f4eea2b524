// SPDX-License-Identifier: Apache-2.0
// Meta: the layout that a tensor of the device declares; and the steps of views, which lead from one layout to another.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/data/backend.h"

namespace spmdx::bridge {

// The type and layout that a tensor declares: those of eager, however the tensor is cut. Offsets count elements.
struct Meta {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  bool defined = true;
  // PyTorch's bits of a view that shows the conjugate, or the negative, of its memory. The steps of the view contain
  // that op, so that reads and writes do not look at the bits; only PyTorch does.
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

// The declared layout of a tensor.
Meta meta_of(const at::Tensor& tensor);
void set_bits(const at::Tensor& tensor, const Meta& meta);  // conjugate and negative
// `meta` as the layout of a whole tensor: at offset 0, without these bits.
MetaRef share(Meta meta);
TensorType type_of(const Meta& meta);
at::Tensor meta_tensor(const Meta& meta);  // of PyTorch's meta device
// A meta tensor laid out as `empty_like` lays it.
at::Tensor dense_like(const at::Tensor& tensor);

}  // namespace spmdx::bridge
