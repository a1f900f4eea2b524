// SPDX-License-Identifier: Apache-2.0
// Decisions as text: what every node does and takes, and what the runner-up would have taken instead.
#pragma once
#include <string>

#include "passes/search/search.h"

namespace spmdx {

// For every node what it does and takes, and below it the moves of its operands and results; then the runner-up, which
// is the cheapest other candidate while all other nodes stay as decided:
//
//   %1 : f32[8@data, 4] = aten.relu(f32[8@data, 4])  work_ns 12 moves_ns 0
//     runner-up, 5095 ns more: f32[8, 4] = aten.relu(f32[8, 4])  work_ns 25 moves_ns 5082
//       %0 f32[8@data, 4] as f32[8, 4] for %1: all_gather over data  bytes 64 cost_ns 5082
//
// Moves that are free are left out; one that several nodes share is told at each of them. The last line is what the
// whole program takes, every move counted once. REQUIRES: `decisions` were made of `graph` with these `options`, whose
// `source` gives the lines of the user.
std::string decisions_text(const Graph& graph, const Decisions& decisions, const CompileOptions& options);

}  // namespace spmdx
