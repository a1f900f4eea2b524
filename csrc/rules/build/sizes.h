// SPDX-License-Identifier: Apache-2.0
// Sizes: the extents and starts of boxes as arguments of a call.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

std::vector<int64_t> extents(const Box& box);  // one per dim
std::vector<int64_t> starts(const Box& box);   // one per dim

// A localise function: sets argument Row::sizes to the sizes of the local result.
void sizes(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
