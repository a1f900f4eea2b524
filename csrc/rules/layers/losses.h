// SPDX-License-Identifier: Apache-2.0
// Losses: pointwise without reduction; dims are reduced in a sum, and composite in a mean, whose count is global.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

// Values of the argument Row::arg, which says how a loss is reduced. Any other value is a sum.
enum : int64_t { kNoReduction = 0, kMean = 1 };

OpRule loss(const Call& call);  // of losses with one number per element
OpRule loss_backward(const Call& call);
OpRule margin_loss(const Call& call);  // of losses with one number per row of classes, which may not be cut
OpRule margin_loss_backward(const Call& call);

// Of both kinds of losses: the op without reduction, then a sum, divided by the global count for a mean.
Values expand_loss(Builder& builder, const Node& node);
Values expand_loss_backward(Builder& builder, const Node& node);

}  // namespace spmdx::rules
