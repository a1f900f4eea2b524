// SPDX-License-Identifier: Apache-2.0
// Boundaries: where a forward pass is cut between two stages, so that least is sent.
#pragma once
#include "passes/places/stages.h"

namespace spmdx {

// As stages_of, and ops without parameters of their own, whose results are read on one later stage alone, run there if
// less is sent so: of those that belong together the last ones, as many as leave least to send. Of a norm behind a
// residual sum, two values are read and one is sent. REQUIRES: partitioned.
Stages stages_with_least_sent(const Graph& graph);

}  // namespace spmdx
