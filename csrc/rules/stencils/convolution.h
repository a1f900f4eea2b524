// SPDX-License-Identifier: Apache-2.0
// Convolutions: batch and channels are cut as in a matrix product, spatial dims as in any stencil.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule convolution(const Call& call);
OpRule convolution_backward(const Call& call);

// The bias is added after sums over cut channels; with cut spatial dims the op becomes a spmdx.stencil.
Values expand_convolution(Builder& builder, const Node& node);
// The gradient of the bias becomes a sum; with cut spatial dims the gradients of input and weight become
// spmdx.stencils.
Values expand_convolution_backward(Builder& builder, const Node& node);

// Localise function of convolution_backward: the size of the bias.
void bias_size(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
