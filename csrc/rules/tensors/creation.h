// SPDX-License-Identifier: Apache-2.0
// Ops that create values out of nothing, and random ones.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule creation(const Call& call);  // no operands: all dims of the outputs are free
OpRule arange(const Call& call);
OpRule random_of(const Call& call);  // drawn element by element: real numbers only

void random_box(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void random_place(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void arange_range(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
