// SPDX-License-Identifier: Apache-2.0
// Convolutions: batch and channels as in a product, spatial dims as of any stencil.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule convolution(const Call& call);
OpRule convolution_backward(const Call& call);

Values expand_convolution(Builder& builder, const Node& node);
Values expand_convolution_backward(Builder& builder, const Node& node);

void bias_size(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
