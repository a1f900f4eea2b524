// SPDX-License-Identifier: Apache-2.0
// Mathematics that expansions of all norms share: statistics over some dims, and the gradient through them.
#pragma once
#include "rules/build/op_builder.h"

namespace spmdx::rules {

// Statistics over some dims of x (rstd = 1 / √(var + eps)), and xhat = (x − mean) · rstd.
struct Normalised {
  ValueId mean, var, rstd, xhat;
};

double count_of(const Shape& shape, const std::vector<int64_t>& dims);  // the product of the sizes of these dims
// Emits the statistics of x over `dims`, which are kept with size 1, in the dtype of x.
Normalised normalise(OpBuilder& maths, ValueId x, const std::vector<int64_t>& dims, const Scalar& eps);

// Emits the gradient of x: rstd · (g − mean(g) − xhat · mean(g · xhat)), with means over `dims`. `g` is the gradient of
// xhat.
ValueId input_gradient(OpBuilder& maths, ValueId g, ValueId xhat, ValueId rstd, const std::vector<int64_t>& dims);

// The value in the shape and dtype of output `output` of the node.
ValueId finish(OpBuilder& maths, ValueId value, size_t output);
// Whether the node makes this output.
bool wanted(const OpBuilder& maths, size_t output);

// The operand that argument `arg` holds, at least in f32 and viewed in `shape`. REQUIRES: the argument is a tensor.
ValueId given(OpBuilder& maths, size_t arg, const Shape& shape);

}  // namespace spmdx::rules
