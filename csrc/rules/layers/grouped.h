// SPDX-License-Identifier: Apache-2.0
// Products of groups: a dim that is grouped by offsets, of which each group has a matrix of its own.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule grouped_mm(const Call& call);
OpRule grouped_block(const Call& call);  // spmdx.grouped_mm
Values expand_grouped_mm(Builder& builder, const Node& node);
void group_starts(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
