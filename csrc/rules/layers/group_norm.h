// SPDX-License-Identifier: Apache-2.0
// Group norms: the dim of channels has two factors, the group and the channel within its group.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule group_norm(const Call& call);
OpRule group_norm_backward(const Call& call);

Values expand_group_norm(Builder& builder, const Node& node);
Values expand_group_norm_backward(Builder& builder, const Node& node);

// Localise functions: N, C and group of the shard.
void group_norm_sizes(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void group_norm_backward_sizes(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
