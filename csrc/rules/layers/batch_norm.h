// SPDX-License-Identifier: Apache-2.0
// Batch norms: statistics per channel; in training, batch and spatial dims are composite.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule batch_norm(const Call& call);
OpRule batch_norm_backward(const Call& call);

Values expand_batch_norm(Builder& builder, const Node& node);
Values expand_batch_norm_backward(Builder& builder, const Node& node);

}  // namespace spmdx::rules
