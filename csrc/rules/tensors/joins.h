// SPDX-License-Identifier: Apache-2.0
// Ops that join tensors along a dim.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule cat(const Call& call);
OpRule stack(const Call& call);
Values expand_cat(Builder& builder, const Node& node);

}  // namespace spmdx::rules
