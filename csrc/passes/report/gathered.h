// SPDX-License-Identifier: Apache-2.0
// Gathered copies of parameters: what each takes to send, and which passes read it.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// One that an all_gather makes. Where both passes read it, it is kept between them, and not sent a second time.
struct GatheredCopy {
  int64_t bytes = 0;  // that a device receives
  bool forward = false, backward = false;
};

// In the order of the plan, without copies that the update alone reads. REQUIRES: a compiled graph.
std::vector<GatheredCopy> gathered_copies(const Graph& graph);

}  // namespace spmdx
