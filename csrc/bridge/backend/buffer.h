// SPDX-License-Identifier: Apache-2.0
// AtenBuffer: a buffer of the runtime that holds an at::Tensor; conversions between the two.
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
  at::Tensor host_;  // a copy of the elements on the CPU, until their digest was asked for or `tensor` may change
};
inline const at::Tensor& tensor_of(const BufferRef& buffer) { return static_cast<const AtenBuffer&>(*buffer).tensor; }
inline BufferRef buffer_of(at::Tensor tensor) { return std::make_shared<AtenBuffer>(std::move(tensor)); }
// A buffer on the shard device with the elements of `tensor`, to which nobody may write any more: if it lies there, the
// buffer shares its memory.
BufferRef lent(const at::Tensor& tensor);
// A buffer on the shard device with a copy of the elements. The tensor may be overwritten as soon as this returns.
BufferRef uploaded(const at::Tensor& tensor, at::MemoryFormat format = at::MemoryFormat::Preserve);

// The copy of the elements on the host that was kept beside an upload, given once; undefined: there is none any more.
// Any thread.
at::Tensor take_host(const BufferRef& buffer);

// Whether its memory holds the elements as they are.
inline bool is_plain(const at::Tensor& tensor) { return !tensor.is_conj() && !tensor.is_neg(); }
// Whether no other tensor shares this memory, or so many in all, and a result written over it would have the same
// layout.
bool owns_memory_alone(const at::Tensor& tensor, size_t sharers = 1);

}  // namespace spmdx::bridge
