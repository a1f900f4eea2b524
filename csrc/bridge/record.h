// SPDX-License-Identifier: Apache-2.0
// Calls in their canonical form (docs/ir.md), from the types of their operands.
#pragma once
#include "graph/graph.h"
#include "runtime/data/backend.h"

namespace spmdx::bridge {

// A sealed call whose tensor operands come first, in order, followed by `rest`.
CallRef make_call(std::string op, std::vector<TensorType> inputs, std::vector<Arg> rest, TensorType output,
                  uint32_t num_params = 0);

CallRef view_call(const TensorType& x, const Shape& sizes);
CallRef permute_call(const TensorType& x, const std::vector<int64_t>& dims);
CallRef slice_call(const TensorType& x, int64_t dim, int64_t start, int64_t end, int64_t step);
CallRef select_call(const TensorType& x, int64_t dim, int64_t index);
CallRef expand_call(const TensorType& x, const Shape& sizes);
CallRef cast_call(const TensorType& x, DType dtype);
CallRef as_strided_call(const TensorType& x, const Shape& sizes, const std::vector<int64_t>& strides, int64_t offset,
                        const std::vector<int64_t>& in_strides);

// The same, recorded on values of the graph being recorded; nothing is recorded where nothing would change.
ValueId record_call(CallRef call, std::vector<ValueId> inputs, const std::vector<Param>& params = {});
ValueId view(ValueId x, const Shape& sizes);
ValueId permute(ValueId x, const std::vector<int64_t>& dims);
ValueId expand(ValueId x, const Shape& sizes);
ValueId cast(ValueId x, DType dtype);
// A tensor of one number: a real is a parameter.
ValueId full_real(const Shape& sizes, double value, DType dtype);
ValueId full_int(const Shape& sizes, int64_t value, DType dtype);
ValueId full_bool(const Shape& sizes, bool value, DType dtype);
// 0 … n-1 as i64.
ValueId iota(int64_t n);
// base with base[index[i]] = source[i] along dim 0; all of rank 1.
ValueId scatter(ValueId base, ValueId index, ValueId source);

}  // namespace spmdx::bridge
