// SPDX-License-Identifier: Apache-2.0
// Neighbour moves, in a small program: a node takes a strategy that no tensor suggests.
#pragma once
#include "passes/search/chain.h"

namespace spmdx {

// Whether one of them helped. Its neighbours follow, or take their best responses.
bool try_neighbours(Assignment& assignment, Chain& chain);

}  // namespace spmdx
