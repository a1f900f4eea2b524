// SPDX-License-Identifier: Apache-2.0
// Softmax and log_softmax.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

// The rule of the ops and of their backward: the dim in argument Row::arg is composite.
OpRule softmax(const Call& call);

Values expand_softmax(Builder& builder, const Node& node);  // of _softmax and _safe_softmax
Values expand_log_softmax(Builder& builder, const Node& node);
Values expand_softmax_backward(Builder& builder, const Node& node);
Values expand_log_softmax_backward(Builder& builder, const Node& node);

}  // namespace spmdx::rules
