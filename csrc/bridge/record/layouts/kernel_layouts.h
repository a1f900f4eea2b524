// SPDX-License-Identifier: Apache-2.0
// How kernels of PyTorch lay out their results, computed without them. Tensors are meta tensors.
#pragma once
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"

namespace spmdx::bridge {

// A meta tensor laid out as the operand is.
at::Tensor stand_in(IValues args, size_t operand);
at::Tensor as_laid(const at::Tensor& tensor, at::MemoryFormat format);
std::vector<int64_t> strides_in(at::MemoryFormat format, at::IntArrayRef sizes);

// What TensorIterator allocates for a result of these operands.
at::Tensor layout_of_iterator(const std::vector<at::Tensor>& operands);
// The operands of a pointwise op that its kernel iterates over: its tensors, converted as type promotion wants it, and
// the number that the op takes in the place of one.
std::vector<at::Tensor> iterated_operands(const OpInfo& info, IValues args);

// (x, weight, bias, stride, padding, dilation, transposed, output_padding, groups) from argument `x` on: of a result,
// or of a gradient, on the CPU.
std::vector<int64_t> strides_of_convolution(IValues args, size_t x, at::IntArrayRef sizes);
std::vector<int64_t> strides_of_weight_gradient(IValues args, size_t x, at::IntArrayRef sizes);

// What MKL's transforms of these dims, in this order, allocate.
at::Tensor layout_of_fft(const at::Tensor& x, const std::vector<int64_t>& dims, at::IntArrayRef sizes);
// The dims from the largest stride to the smallest; the last one may have to stay.
std::vector<int64_t> sorted_by_stride(const at::Tensor& x, std::vector<int64_t> dims, bool last_stays);

}  // namespace spmdx::bridge
