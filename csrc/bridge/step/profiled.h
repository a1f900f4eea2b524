// SPDX-License-Identifier: Apache-2.0
// Profiled: plans, steps, ops and collectives are ranges of torch.profiler.
#pragma once
#include "runtime/data/observer.h"

namespace spmdx::bridge {

// The observer that tells PyTorch's profiler of ranges, on all threads that work for a step. Any thread.
Observer& profiled();
// Threads of ours that run steps are part of the calling thread's profile from now on.
void join_profile();
// They are part of none. REQUIRES: no step runs that is watched.
void forget_profile();

}  // namespace spmdx::bridge
