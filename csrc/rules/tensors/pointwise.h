// SPDX-License-Identifier: Apache-2.0
// Pointwise ops, and those that may not be cut.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule pointwise(const Call& call);    // every operand broadcasts to every output
OpRule channelwise(const Call& call);  // pointwise, other operands are one of the channels (argument 3)
OpRule where_other(const Call& call);  // linear where the other value is 0
OpRule to_copy(const Call& call);      // linear between floating dtypes
OpRule replicated(const Call& call);   // nothing may be cut, and that is known

void diagonal_offset(const Call& call, const Boxes& inputs, const Boxes& outputs,
                     std::vector<Arg>& args);  // of tril and triu

// A list of tensors, each element for itself, and one finding of them all.
OpRule amp_unscale(const Call& call);
Values expand_amp_unscale(Builder& builder, const Node& node);

}  // namespace spmdx::rules
