// SPDX-License-Identifier: Apache-2.0
// What users hear of their plans: ops without a rule that make devices gather (a warning once a process, or an error),
// programs that are planned again and again, pipelines with one microbatch.
#pragma once
#include "runtime/step/plan.h"

namespace spmdx::bridge {

// Whether an op without a rule is an error, and no warning. Any thread.
void set_fallbacks_are_errors(bool errors);
// Whether plans are made for their costs alone: nothing is said of them. Any thread.
void set_plans_are_trials(bool trials);
bool plans_are_trials();

// Throws ShardingError where fallbacks are errors, else remembers what to say. Holds the recorder's lock.
void note_plan(const Plan& plan);
// Gives the warnings that are remembered. A user may have made warnings errors, so the step must be on its way by then.
// Holds the recorder's lock.
void warn_of_plans();

}  // namespace spmdx::bridge
