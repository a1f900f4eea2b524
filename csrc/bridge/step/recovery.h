// SPDX-License-Identifier: Apache-2.0
// What happens to pending values when their graph does not run: computed without shardings, or undone.
#pragma once
#include <exception>

#include "bridge/recorder/recorder_state.h"

namespace spmdx::bridge {

// Both: Holds the recorder's lock. Gives up the GIL.

// For a graph that cannot be planned as annotated. Values that were never computed would be lost with it, a fresh
// model's parameters among them: they are computed whole, on one device. Annotations stay on their tensors.
void compute_unsharded(RecorderState& state);

// Drops the pending graph. Roots go back to what was last computed; those that never were hold `error` (null: the error
// that they hold already).
void roll_back(RecorderState& state, std::exception_ptr error);

}  // namespace spmdx::bridge
