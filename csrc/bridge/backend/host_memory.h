// SPDX-License-Identifier: Apache-2.0
// Memory of the host for copies of large tensors.
#pragma once
#include <ATen/core/Tensor.h>

namespace spmdx::bridge {

// An uninitialised CPU tensor in memory of its own. Where it is large, the system is asked for huge pages: to touch new
// memory for the first time, page by page, takes several times as long as to copy elements into it.
at::Tensor fresh_on_host(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType type);
// A copy of a CPU tensor in such memory.
at::Tensor copy_on_host(const at::Tensor& tensor, at::MemoryFormat format);

}  // namespace spmdx::bridge
