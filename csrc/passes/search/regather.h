// SPDX-License-Identifier: Apache-2.0
// Residence: which state is gathered anew for uses that lie far apart, and which is gathered once and kept.
#pragma once
#include <vector>

#include "passes/search/assignment.h"

namespace spmdx {

// By value: state, and what only movement and casts make of it. Its gathered copies are transient: forward and backward
// gather a sharded parameter separately, so that it is never held whole in between.
std::vector<bool> transient_values(const Graph& graph);

// Takes the state out of `transient` that pays most for its bytes, as long as all the copies to be kept fit in `budget`
// bytes a device. REQUIRES: every node of `assignment` is decided, and it was made with `transient`.
void keep_within(int64_t budget, const Assignment& assignment, std::vector<bool>& transient);

}  // namespace spmdx
