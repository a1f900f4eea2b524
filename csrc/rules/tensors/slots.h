// SPDX-License-Identifier: Apache-2.0
// Ops on lists of tensors, as fused optimizers: element i of every list belongs to the same parameter.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule slots(const Call& call);
Values expand_slots(Builder& builder, const Node& node);

}  // namespace spmdx::rules
