// SPDX-License-Identifier: Apache-2.0
// The engine of this process, and the failure of a step that the program has not heard of.
#pragma once
#include "runtime/step/engine.h"

namespace spmdx::bridge {

// The one engine, which is never destroyed. Any thread.
Engine& engine();

// Whether a step failed, or a wait for a value of one, and the program has not heard of it. Any thread, all three.
bool has_unseen_failure();
void note_failure();
void forget_failure();

}  // namespace spmdx::bridge
