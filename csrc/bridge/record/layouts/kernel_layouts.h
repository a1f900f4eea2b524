// SPDX-License-Identifier: Apache-2.0
// The layouts that PyTorch's kernels give to their results, computed without running them. Tensors are meta tensors.
#pragma once
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"

namespace spmdx::bridge {

// A meta tensor of the type and layout of this operand; one in another memory format; strides in a memory format.
at::Tensor stand_in(IValues args, size_t operand);
at::Tensor as_laid(const at::Tensor& tensor, at::MemoryFormat format);
std::vector<int64_t> strides_in(at::MemoryFormat format, at::IntArrayRef sizes);

// The result that TensorIterator allocates for these operands.
at::Tensor layout_of_iterator(const std::vector<at::Tensor>& operands);
// The operands that the kernel of a pointwise op iterates over: the tensors, converted by type promotion, and a number
// that the op takes in the place of a tensor.
std::vector<at::Tensor> iterated_operands(const OpInfo& info, IValues args);

// The strides of a convolution's result (or gradient of x), and of its gradient of the weight. The
// arguments from `x` on are (x, weight, bias, stride, padding, dilation, transposed, output_padding, groups).
std::vector<int64_t> strides_of_convolution(IValues args, size_t x, at::IntArrayRef sizes);
std::vector<int64_t> strides_of_weight_gradient(IValues args, size_t x, at::IntArrayRef sizes);

// The result of these sizes that MKL's transform of these dims, in this order, allocates.
at::Tensor layout_of_fft(const at::Tensor& x, const std::vector<int64_t>& dims, at::IntArrayRef sizes);
// The dims from the largest stride to the smallest. `last_stays`: the last dim stays the last.
std::vector<int64_t> sorted_by_stride(const at::Tensor& x, std::vector<int64_t> dims, bool last_stays);

}  // namespace spmdx::bridge
