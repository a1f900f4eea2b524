// SPDX-License-Identifier: Apache-2.0
// Softmax and log_softmax, plain and masked.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule softmax(const Call& call);
OpRule masked_softmax(const Call& call);

Values expand_softmax(Builder& builder, const Node& node);  // also _safe_softmax
Values expand_log_softmax(Builder& builder, const Node& node);
Values expand_softmax_backward(Builder& builder, const Node& node);
Values expand_log_softmax_backward(Builder& builder, const Node& node);

}  // namespace spmdx::rules
