// SPDX-License-Identifier: Apache-2.0
// Pointwise ops, and the rule of ops that may not be cut.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule pointwise(const Call& call);    // all dims pass; every operand broadcasts to every output
OpRule channelwise(const Call& call);  // pointwise; operands after the first have one dim, the channel (argument 3)
OpRule where_other(const Call& call);  // pointwise; linear in the second operand if the scalar `other` is 0
OpRule to_copy(const Call& call);      // pointwise; linear between floating dtypes
OpRule replicated(const Call& call);   // no dim may be cut

// Localise function of tril and triu: the diagonal counts from the rows and columns of the box.
void diagonal_offset(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

// _amp_foreach_non_finite_check_and_unscale: pointwise on a list of tensors, with one flag (some element is not finite)
// for all of them. The expansion makes one call per tensor.
OpRule amp_unscale(const Call& call);
Values expand_amp_unscale(Builder& builder, const Node& node);

}  // namespace spmdx::rules
