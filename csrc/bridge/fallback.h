// SPDX-License-Identifier: Apache-2.0
// What users hear of ops without a rule that make devices gather: a warning once a process, or an error.
#pragma once
#include "runtime/step.h"

namespace spmdx::bridge {

void set_fallbacks_are_errors(bool errors);

// REQUIRES: the GIL may be taken. Throws ShardingError where fallbacks are errors.
void mind_fallbacks(const Plan& plan);

}  // namespace spmdx::bridge
