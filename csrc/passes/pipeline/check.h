// SPDX-License-Identifier: Apache-2.0
// Whether a schedule can run: every action is there once, and no rank waits for ever.
#pragma once
#include "passes/pipeline/dependencies.h"
#include "passes/pipeline/replay.h"

namespace spmdx {

// Throws ShardingError, which names the wrong action by rank and position, unless each stage runs each microbatch's
// forward once and its backward once, whole or in halves, and all ranks come to their end though receives block.
void check_schedule(const Schedule& schedule);

// The same of a replay, whatever its times.
void require_complete(const Dependencies& dependencies, const Replay& replay);

}  // namespace spmdx
