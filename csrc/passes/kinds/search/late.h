// SPDX-License-Identifier: Apache-2.0
// Late acceptance: a walk at random that takes what is no worse than what it was at some steps ago.
#pragma once
#include "passes/kinds/search/group_moves.h"

namespace spmdx {

// The best that is met on the way from `start`, with so many tasks looked at.
TaskSequences accept_late(const TaskGraph& graph, const TaskSequences& start, GroupMoves& groups, int64_t visits);

}  // namespace spmdx
