// SPDX-License-Identifier: Apache-2.0
// Rolls.
#pragma once
#include "rules/rule.h"

namespace spmdx::rules {

OpRule rolled(const Call& call);
Values expand_roll(Builder& builder, const Node& node);

}  // namespace spmdx::rules
