// SPDX-License-Identifier: Apache-2.0
// Planning without running, of all threads of the program.
#pragma once

namespace spmdx::bridge {

// Both: Program threads. Takes the recorder's lock.

// From here on steps are planned and not run; what is pending still runs.
void begin_plan_only();
// What is pending is dropped; tensors from before get back the values and annotations they had then.
void end_plan_only();

}  // namespace spmdx::bridge
