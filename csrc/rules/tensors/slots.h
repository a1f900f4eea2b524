// SPDX-License-Identifier: Apache-2.0
// Slots: ops on lists of tensors (fused optimizers), where element i of every list, slot i, belongs to one parameter.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule slots(const Call& call);                           // pointwise; composite if there are several slots
Values expand_slots(Builder& builder, const Node& node);  // into one call per slot

}  // namespace spmdx::rules
