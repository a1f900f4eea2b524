// SPDX-License-Identifier: Apache-2.0
// Rolls: torch.roll shifts the rows of a dim, and rows shifted past the end come in at the beginning.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule rolled(const Call& call);                         // rolled dims are composite
Values expand_roll(Builder& builder, const Node& node);  // into permutes of blocks along one cut dim

}  // namespace spmdx::rules
