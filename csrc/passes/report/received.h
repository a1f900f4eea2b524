// SPDX-License-Identifier: Apache-2.0
// Received: the bytes of a step that cross the wire to one device.
#pragma once
#include "graph/graph.h"

namespace spmdx {

// Of the device that receives most; of a pipeline one that holds several stages receives what each of them does.
// REQUIRES: a compiled graph.
int64_t most_received(const Graph& graph);

}  // namespace spmdx
