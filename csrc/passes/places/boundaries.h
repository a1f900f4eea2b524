// SPDX-License-Identifier: Apache-2.0
// Boundaries: where a forward pass is cut between two stages, so that least is sent.
#pragma once
#include <map>

#include "passes/places/stages.h"

namespace spmdx {

// Nodes that are better on a later stage than that of their operands, by the stage: ops without parameters of their
// own, whose results are read there alone. Of those that belong together the last ones move, as many as leave least to
// send; as a norm behind a residual sum, of which two values are read and one is sent. REQUIRES: partitioned.
std::map<NodeId, int32_t> moved_forwards(const Graph& graph, const Stages& stages);

}  // namespace spmdx
