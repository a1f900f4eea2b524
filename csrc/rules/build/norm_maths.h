// SPDX-License-Identifier: Apache-2.0
// What all norms share: statistics over some dims, and the gradient that flows back through them.
#pragma once
#include "rules/build/op_builder.h"

namespace spmdx::rules {

// Statistics over some dims of x, and x normalised by them.
struct Normalised {
  ValueId mean, var, rstd, xhat;
};

double count_of(const Shape& shape, const std::vector<int64_t>& dims);
Normalised normalise(OpBuilder& maths, ValueId x, const std::vector<int64_t>& dims, const Scalar& eps);

// rstd · (g − mean(g) − xhat · mean(g · xhat)), means over `dims`
ValueId input_gradient(OpBuilder& maths, ValueId g, ValueId xhat, ValueId rstd, const std::vector<int64_t>& dims);

// In the type of that output of the node.
ValueId finish(OpBuilder& maths, ValueId value, size_t output);
bool wanted(const OpBuilder& maths, size_t output);

// The operand in that argument, at least f32, shaped to broadcast against x.
ValueId given(OpBuilder& maths, size_t arg, const Shape& shape);

}  // namespace spmdx::rules
