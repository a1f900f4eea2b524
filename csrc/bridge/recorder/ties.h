// SPDX-License-Identifier: Apache-2.0
// Tensors that share memory, for those who copy or save several of them.
#pragma once
#include <ATen/core/Tensor.h>

namespace spmdx::bridge {

// The same number for tensors that share memory, and no other tensor's ever. REQUIRES of all: the tensor is ours.
uint64_t memory_id(const at::Tensor& tensor);
// It shows all of its memory, laid out as that is.
bool shows_whole(const at::Tensor& tensor);
// Sizes, strides, offset and dtype say what of its memory it shows, and how.
bool is_strided(const at::Tensor& tensor);
// Somebody else holds its memory.
bool shares_memory(const at::Tensor& tensor);
// All of the memory, as a tensor without a gradient.
at::Tensor whole_of(const at::Tensor& tensor);
// The same in memory of its own, annotated alike.
at::Tensor copy_of_whole(const at::Tensor& tensor);
// `tensor` becomes in `whole` what `source` is in its own memory. REQUIRES: `whole` is a copy_of_whole of that.
void show_same_of(const at::Tensor& tensor, const at::Tensor& whole, const at::Tensor& source);

}  // namespace spmdx::bridge
