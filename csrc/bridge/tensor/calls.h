// SPDX-License-Identifier: Apache-2.0
// Calls in their canonical form (docs/ir.md), from the types of their operands.
#pragma once
#include "graph/graph.h"
#include "runtime/data/backend.h"

namespace spmdx::bridge {

// A sealed call whose tensor operands come first, in order, followed by `rest`.
CallRef make_call(std::string op, std::vector<TensorType> inputs, std::vector<Arg> rest, TensorType output,
                  uint32_t num_params = 0);

// Calls on an operand of type `x`. `in_strides`: the declared strides of that operand.
CallRef view_call(const TensorType& x, const Shape& sizes);
CallRef permute_call(const TensorType& x, const std::vector<int64_t>& dims);
CallRef slice_call(const TensorType& x, int64_t dim, int64_t start, int64_t end, int64_t step);
CallRef select_call(const TensorType& x, int64_t dim, int64_t index);
CallRef expand_call(const TensorType& x, const Shape& sizes);
CallRef cast_call(const TensorType& x, DType dtype);
CallRef as_strided_call(const TensorType& x, const Shape& sizes, const std::vector<int64_t>& strides, int64_t offset,
                        const std::vector<int64_t>& in_strides);

}  // namespace spmdx::bridge
