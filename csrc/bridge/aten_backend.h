// SPDX-License-Identifier: Apache-2.0
// AtenBackend: buffers are at::Tensor, kernels are prepared ATen calls.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/operator_name.h>

#include "runtime/data/backend.h"

namespace spmdx::bridge {

class AtenBuffer final : public Buffer {
 public:
  explicit AtenBuffer(at::Tensor tensor, at::Tensor host = {}) : tensor(std::move(tensor)), host(std::move(host)) {}
  at::Tensor tensor;
  at::Tensor host;  // the same elements there, until somebody asked for their digest or may write to `tensor`
};
inline const at::Tensor& tensor_of(const BufferRef& buffer) { return static_cast<const AtenBuffer&>(*buffer).tensor; }
inline BufferRef buffer_of(at::Tensor tensor) { return std::make_shared<AtenBuffer>(std::move(tensor)); }
// The elements of a tensor where shards lie. Nobody may write to the tensor any more; memory is shared if it is there.
BufferRef lent(const at::Tensor& tensor);
// The same, of a tensor that may be overwritten at once.
BufferRef uploaded(const at::Tensor& tensor, at::MemoryFormat format = at::MemoryFormat::Preserve);

// The process-wide instance.
Backend& aten_backend();

// "aten.add.Tensor" for an operator name, and back. The overload "default" is left out.
std::string op_name(const c10::OperatorName& name);
c10::OperatorName operator_name(std::string_view op);

DType to_dtype(c10::ScalarType type);
c10::ScalarType to_scalar_type(DType dtype);

}  // namespace spmdx::bridge
