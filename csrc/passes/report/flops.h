// SPDX-License-Identifier: Apache-2.0
// Flops: what a planned program computes, on the device that has most to do and as if on one device.
#pragma once
#include "graph/graph.h"
#include "sharding/hardware.h"

namespace spmdx {

struct Flops {
  int64_t device = 0;  // of the most loaded device
  int64_t whole = 0;   // every op of the plan once, on whole tensors
};

// Of one node, on the device that has most to do; of a collective none. REQUIRES: planned.
double flops_on_a_device(const Graph& graph, const Node& node);

// Counts two for every multiply-add of a contraction, one for an element of any other op, none for data movement.
// REQUIRES: planned, so that values have their shardings; a graph without mesh is one device's.
Flops count_flops(const Graph& graph);

// The least time in which one device could do all of it: at the peak rate of each op's dtype.
double seconds_at_peak(const Graph& graph, const Hardware& hardware);

}  // namespace spmdx
