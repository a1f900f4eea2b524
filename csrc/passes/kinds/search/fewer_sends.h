// SPDX-License-Identifier: Apache-2.0
// Fewer sends: of assignments that are done about as soon, one that sends less.
#pragma once
#include "passes/kinds/sequences.h"

namespace spmdx {

// Transfers do not wait for each other, so a search for the shortest makespan sends what need not be sent, and keeps
// links and processors busy with it.
struct FewerSends {
  TaskSequences sequences;
  int64_t ns = 0;  // of the makespan, and of all transfers for each device
};

FewerSends send_less(const TaskGraph& graph, const TaskSequences& found);

}  // namespace spmdx
