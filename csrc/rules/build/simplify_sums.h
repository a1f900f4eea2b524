// SPDX-License-Identifier: Apache-2.0
// Sums that follow from how a value was made: nothing needs to be added up, nor exchanged.
#pragma once
#include <optional>

#include "rules/build/op_builder.h"

namespace spmdx::rules {

// Σ `value` along `dim` (kept, with size 1), where the nodes that made `value` tell it; at least f32.
std::optional<ValueId> known_sum(OpBuilder& maths, ValueId value, int64_t dim);

}  // namespace spmdx::rules
