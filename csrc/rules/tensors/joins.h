// SPDX-License-Identifier: Apache-2.0
// Ops that join tensors along a dim: families of the ops of the same names.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule cat(const Call& call);
OpRule stack(const Call& call);
Values expand_cat(Builder& builder, const Node& node);  // into a local cat of blocks and a permute

}  // namespace spmdx::rules
