// SPDX-License-Identifier: Apache-2.0
// Parts: rules in which a dim is cut into a fixed number of parts or not at all.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

// The index of the one factor of a dim. REQUIRES: the dim has exactly one, else InternalError.
int sole_factor(const TensorFactors& factors, size_t dim, const Call& call);

// The rule of an op with one operand and one result, in which `dim` has a loose factor: it may differ in size between
// the two, and is cut into `parts` parts or not at all. All other dims pass.
OpRule parts_of_dim(const Call& call, size_t dim, int64_t parts);

}  // namespace spmdx::rules
