// SPDX-License-Identifier: Apache-2.0
// The engine of this process, and the failure of a step that the program has not heard of.
#pragma once
#include "runtime/step/engine.h"

namespace spmdx::bridge {

Engine& engine();

bool has_unseen_failure();
void note_failure();
void forget_failure();

}  // namespace spmdx::bridge
