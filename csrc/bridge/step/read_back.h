// SPDX-License-Identifier: Apache-2.0
// Reading back: values of tensors on the host.
#pragma once
#include <ATen/core/Tensor.h>

namespace spmdx::bridge {

// All: Program threads. Takes the recorder's lock, but does not hold it while it waits for the value (a caller that
// holds it goes on holding it). Gives up the GIL. REQUIRES: the tensor is ours.

// Flushes what is pending, waits, and gives the whole tensor on the CPU in its declared layout.
at::Tensor materialise(const at::Tensor& tensor);
// The same in another dtype and memory format. The elements are copied once.
at::Tensor materialise(const at::Tensor& tensor, c10::ScalarType dtype, at::MemoryFormat format);
// The same, but the result may share memory with values of the graph: REQUIRES that nobody writes to it.
at::Tensor peek(const at::Tensor& tensor);
// As peek, and laid out as materialise does it, in a storage that holds no other elements: for who writes storages.
at::Tensor peek_dense(const at::Tensor& tensor);

}  // namespace spmdx::bridge
