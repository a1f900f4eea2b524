// SPDX-License-Identifier: Apache-2.0
// Rolls: rows of a dim move on, and the last ones come first.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule rolled(const Call& call);
Values expand_roll(Builder& builder, const Node& node);

}  // namespace spmdx::rules
