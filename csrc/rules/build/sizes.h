// SPDX-License-Identifier: Apache-2.0
// Sizes and starts of boxes, as arguments of a call.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

std::vector<int64_t> extents(const Box& box);
std::vector<int64_t> starts(const Box& box);

// Localises the argument that the op's row names, which holds the sizes of the result.
void sizes(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
