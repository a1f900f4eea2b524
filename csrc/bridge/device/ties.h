// SPDX-License-Identifier: Apache-2.0
// Tensors that share memory, for those who copy or save several of them.
#pragma once
#include <ATen/core/Tensor.h>

namespace spmdx::bridge {

// All: Program threads. Takes the recorder's lock where something is read or copied. REQUIRES: the tensor is ours.

// The same number for tensors that share memory, and no other tensor's ever.
uint64_t memory_id(const at::Tensor& tensor);
// Whether it shows all of its memory, in the layout of that memory.
bool shows_whole(const at::Tensor& tensor);
// Whether its sizes, strides, offset and dtype alone say which elements of its memory it shows.
bool is_strided(const at::Tensor& tensor);
// Whether another tensor or storage holds its memory, too.
bool shares_memory(const at::Tensor& tensor);
// All of the memory, as a tensor without a gradient.
at::Tensor whole_of(const at::Tensor& tensor);
// A copy of all of the memory, as a tensor without a gradient, with the annotation of the original.
at::Tensor copy_of_whole(const at::Tensor& tensor);
// `tensor` becomes in `whole` what `source` is in its own memory. REQUIRES: `whole` is a copy_of_whole of that.
void show_same_of(const at::Tensor& tensor, const at::Tensor& whole, const at::Tensor& source);

}  // namespace spmdx::bridge
