// SPDX-License-Identifier: Apache-2.0
// Offload: what lies in the memory of hosts is brought to devices where it is read, and goes back when it is made.
#pragma once
#include "graph/graph.h"

namespace spmdx {

// Adds spmdx.to_device for inputs that lie on hosts, once before the first op that reads them, and spmdx.to_host for
// outputs that are to lie there. What is made of one such input follows together, so that devices hold few of them at a
// time. Passes before it know no hosts. REQUIRES and ensures: partitioned, every value with its stage.
void offload(Graph& graph);

}  // namespace spmdx
