// SPDX-License-Identifier: Apache-2.0
// Reads layouts of tensors, and makes meta tensors of them.
#include "bridge/tensor/meta.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>

#include "bridge/backend/aten_names.h"

namespace spmdx::bridge {

Meta meta_of(const at::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset(), true,
          tensor.is_conj(),     tensor.is_neg()};
}

void set_bits(const at::Tensor& tensor, const Meta& meta) {
  if (tensor.is_conj() != meta.conjugate) tensor._set_conj(meta.conjugate);
  if (tensor.is_neg() != meta.negative) tensor._set_neg(meta.negative);
}

MetaRef share(Meta meta) {
  meta.offset = 0;
  meta.conjugate = meta.negative = false;
  return std::make_shared<const Meta>(std::move(meta));
}

TensorType type_of(const Meta& meta) {
  if (!meta.defined) return {DType::unknown, {}, false};
  return {to_dtype(meta.dtype), meta.sizes, false};
}

at::Tensor meta_tensor(const Meta& meta) {
  at::Tensor tensor = at::detail::empty_strided_meta(meta.sizes, meta.strides, meta.dtype);
  set_bits(tensor, meta);
  return tensor;
}

at::Tensor dense_like(const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) return tensor;
  return meta_tensor(
      {tensor.scalar_type(), tensor.sizes().vec(), at::infer_dense_strides(tensor.sizes(), tensor.strides()), 0, true});
}

}  // namespace spmdx::bridge
