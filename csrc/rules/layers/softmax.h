// SPDX-License-Identifier: Apache-2.0
// Softmax and log_softmax, and the masked softmax.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

// Rules of the ops and of their backward. Row::arg is the argument that names the dim of the softmax.
OpRule softmax(const Call& call);         // that dim is composite
OpRule masked_softmax(const Call& call);  // that dim may not be cut

Values expand_softmax(Builder& builder, const Node& node);  // of _softmax and _safe_softmax
Values expand_log_softmax(Builder& builder, const Node& node);
Values expand_softmax_backward(Builder& builder, const Node& node);
Values expand_log_softmax_backward(Builder& builder, const Node& node);

}  // namespace spmdx::rules
