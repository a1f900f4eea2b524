// SPDX-License-Identifier: Apache-2.0
// Tabu: a local search over devices and orders, in which critical tasks move.
#pragma once
#include "passes/kinds/search/group_moves.h"

namespace spmdx {

struct FoundSequences {
  TaskSequences sequences;
  int64_t ns = kNever;
};

// The best that is met on the way from `start`, with so many tasks looked at.
FoundSequences search_tabu(const TaskGraph& graph, const TaskSequences& start, GroupMoves& groups, int64_t visits);

}  // namespace spmdx
