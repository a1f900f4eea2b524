// SPDX-License-Identifier: Apache-2.0
// Buffers are at::Tensor: how one becomes the other.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

#include "runtime/data/backend.h"

namespace spmdx::bridge {

class AtenBuffer final : public Buffer {
 public:
  explicit AtenBuffer(at::Tensor tensor, at::Tensor host = {}) : tensor(std::move(tensor)), host_(std::move(host)) {}
  const at::Tensor tensor;

 private:
  friend at::Tensor take_host(const BufferRef& buffer);
  at::Tensor host_;  // the same elements there, until somebody asked for their digest or may write to `tensor`
};
inline const at::Tensor& tensor_of(const BufferRef& buffer) { return static_cast<const AtenBuffer&>(*buffer).tensor; }
inline BufferRef buffer_of(at::Tensor tensor) { return std::make_shared<AtenBuffer>(std::move(tensor)); }
// The elements of a tensor where shards lie. Nobody may write to the tensor any more; memory is shared if it is there.
BufferRef lent(const at::Tensor& tensor);
// The same, of a tensor that may be overwritten at once.
BufferRef uploaded(const at::Tensor& tensor, at::MemoryFormat format = at::MemoryFormat::Preserve);

// The elements on the host that were kept beside an upload, given once; undefined: there are none any more. Any thread.
at::Tensor take_host(const BufferRef& buffer);

// Nobody else sees these bytes, and what is written in their place would be laid out alike.
bool owns_memory_alone(const at::Tensor& tensor);

}  // namespace spmdx::bridge
