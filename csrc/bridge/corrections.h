// SPDX-License-Identifier: Apache-2.0
// What kernels give where meta kernels say something else.
#pragma once
#include "bridge/ivalue.h"
#include "bridge/meta.h"

namespace spmdx::bridge {

using Results = std::vector<std::vector<Meta>>;  // per result of the schema its tensors

enum class Where : uint8_t { everywhere, on_the_cpu };  // elsewhere meta kernels are right
inline bool holds(Where where) { return where == Where::everywhere || place().is_cpu(); }

void correct_types(const OpInfo& info, IValues args, Results& results);    // correct_types.cpp
void correct_layouts(const OpInfo& info, IValues args, Results& results);  // correct_layouts.cpp

}  // namespace spmdx::bridge
