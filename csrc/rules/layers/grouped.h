// SPDX-License-Identifier: Apache-2.0
// Grouped products: offsets divide a dim into groups, and each group is multiplied by a matrix of its own.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule grouped_mm(const Call& call);     // of aten._grouped_mm: groups and the grouped dim are composite
OpRule grouped_block(const Call& call);  // of spmdx.grouped_mm: they may be cut
Values expand_grouped_mm(Builder& builder, const Node& node);  // into spmdx.grouped_mm
// Localise function of spmdx.grouped_mm: the start of the grouped dim, and the first group.
void group_starts(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
