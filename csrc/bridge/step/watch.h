// SPDX-License-Identifier: Apache-2.0
// Watch: who is told of plans, steps, ops and collectives.
#pragma once

namespace spmdx::bridge {

// Program threads. Both return when no step runs that is watched otherwise; give up the GIL while they wait.

// Whether PyTorch's profiler is told. REQUIRES: it is on, when this begins and when it ends.
void watch_for_profiler(bool told);
// Whether times are taken.
void watch_for_times(bool taken);

}  // namespace spmdx::bridge
