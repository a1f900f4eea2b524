// SPDX-License-Identifier: Apache-2.0
// Parts of a dim: factors that are cut into a number of parts or not at all.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

// The one factor of a dim.
int sole_factor(const TensorFactors& factors, size_t dim, const Call& call);

// The rule of an op of one operand and one result, whose dim has another size in the result and is cut into so many
// parts or whole; all others pass.
OpRule parts_of_dim(const Call& call, size_t dim, int64_t parts);

}  // namespace spmdx::rules
