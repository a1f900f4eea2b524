// SPDX-License-Identifier: Apache-2.0
// Norms over the last dims (layer_norm, rms_norm), and the norm of weights: families of the ops of the same names.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule layer_norm(const Call& call);
OpRule layer_norm_backward(const Call& call);
OpRule rms_norm(const Call& call);
OpRule rms_norm_backward(const Call& call);
OpRule weight_norm(const Call& call);  // also of its backward; the dim in the last argument passes

Values expand_layer_norm(Builder& builder, const Node& node);
Values expand_layer_norm_backward(Builder& builder, const Node& node);

}  // namespace spmdx::rules
