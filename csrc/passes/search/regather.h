// SPDX-License-Identifier: Apache-2.0
// Regather policy: which state is gathered again for a use that is far away, and which is gathered once and kept.
#pragma once
#include <vector>

#include "passes/search/assignment.h"

namespace spmdx {

// By value: whether it is state, or a view or cast of state. Gathered copies of such values are transient: forward and
// backward gather a sharded parameter separately, so that it is not held whole between them.
std::vector<bool> transient_values(const Graph& graph);

// Marks state as not transient, that which saves most time for a byte first, as long as all copies that are kept fit in
// `budget` bytes a device. REQUIRES: every node of `assignment` is decided, and it was made with `transient`.
void keep_within(int64_t budget, const Assignment& assignment, std::vector<bool>& transient);

}  // namespace spmdx
