// SPDX-License-Identifier: Apache-2.0
// Simplified sums: sums that are known from the nodes that made a value, so that nothing is added up or exchanged.
#pragma once
#include <optional>

#include "rules/build/op_builder.h"

namespace spmdx::rules {

// The sum of `value` along `dim`, which is kept with size 1, at least in f32. Emits it from the operands of the nodes
// that made `value`; nothing where these do not tell it.
std::optional<ValueId> known_sum(OpBuilder& maths, ValueId value, int64_t dim);

}  // namespace spmdx::rules
