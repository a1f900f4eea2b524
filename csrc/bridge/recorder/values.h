// SPDX-License-Identifier: Apache-2.0
// Canonical calls recorded on values of the graph being recorded; nothing is recorded where nothing would change.
#pragma once
#include <vector>

#include "graph/graph.h"
#include "runtime/data/backend.h"

namespace spmdx::bridge {

// All: Holds the recorder's lock, since ids of values mean nothing without it.

// Appends a node; returns the first of its results.
ValueId record_call(CallRef call, std::vector<ValueId> inputs, const std::vector<Param>& params = {});
// The same elements in other sizes, with the dims in another order, repeated to larger sizes, or in another dtype.
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
