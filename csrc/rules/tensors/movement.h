// SPDX-License-Identifier: Apache-2.0
// Ops that move data: dims they act upon stay whole, all others pass.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule permute(const Call& call);
OpRule expand(const Call& call);
OpRule repeat(const Call& call);
OpRule flip(const Call& call);
OpRule rot90(const Call& call);
OpRule select(const Call& call);
OpRule select_backward(const Call& call);
OpRule slice_scatter(const Call& call);
OpRule select_scatter(const Call& call);
OpRule unfold(const Call& call);
OpRule unfold_backward(const Call& call);
OpRule fft(const Call& call);      // the dims in argument 1 whole, of a size of their own in each tensor
OpRule resized(const Call& call);  // a dim has another size in each tensor (glu)

}  // namespace spmdx::rules
