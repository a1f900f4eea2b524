// SPDX-License-Identifier: Apache-2.0
// Losses: without reduction pointwise, as a sum partial, as a mean composite (the count is global).
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

// The argument that says how a loss is reduced; all else is a sum.
enum : int64_t { kNoReduction = 0, kMean = 1 };

OpRule loss(const Call& call);  // pointwise
OpRule loss_backward(const Call& call);
OpRule margin_loss(const Call& call);  // one number a row of classes
OpRule margin_loss_backward(const Call& call);

Values expand_loss(Builder& builder, const Node& node);
Values expand_loss_backward(Builder& builder, const Node& node);

}  // namespace spmdx::rules
