// SPDX-License-Identifier: Apache-2.0
// Ops that move data: families of the ops of the same names. Dims that an op acts on may not be cut; all others pass.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule permute(const Call& call);
OpRule expand(const Call& call);
OpRule repeat(const Call& call);
OpRule flip(const Call& call);
OpRule rot90(const Call& call);
OpRule unfold(const Call& call);
OpRule unfold_backward(const Call& call);
OpRule fft(const Call& call);      // acts on the dims in argument 1, which may differ in size from tensor to tensor
OpRule resized(const Call& call);  // acts on the dim in argument Row::arg, which may differ in size as well (glu)

}  // namespace spmdx::rules
