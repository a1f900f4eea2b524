// SPDX-License-Identifier: Apache-2.0
// Extrema with their positions: argmax, argmin, max and min of a dim.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule reduce_index(const Call& call);
Values expand_extremum(Builder& builder, const Node& node);

}  // namespace spmdx::rules
