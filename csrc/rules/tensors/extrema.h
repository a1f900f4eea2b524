// SPDX-License-Identifier: Apache-2.0
// Extrema with their positions: argmax, argmin, and max and min over one dim.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule reduce_index(const Call& call);                       // reduced dims are composite
Values expand_extremum(Builder& builder, const Node& node);  // into two reductions, of values and of positions

}  // namespace spmdx::rules
