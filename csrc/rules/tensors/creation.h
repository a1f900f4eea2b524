// SPDX-License-Identifier: Apache-2.0
// Ops that create values without reading a tensor, and random ops.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule creation(const Call& call);   // the rule of an op without operands: all dims pass
OpRule arange(const Call& call);     // may be cut if start, end and step are integers
OpRule random_of(const Call& call);  // draws one real number for each element of an operand; DoesNotFit if complex

// Localise functions: the box of a spmdx.random op; the box of a random op of ATen; start and end of an arange.
void random_box(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void random_place(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void arange_range(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
