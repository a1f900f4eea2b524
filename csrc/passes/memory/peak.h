// SPDX-License-Identifier: Apache-2.0
// Peak: the bytes a device holds in a run, from the graph alone, with inputs held throughout.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// At the worst moment, on the devices that hold most: those with this coordinate along the axis of the stages.
struct PeakBytes {
  int64_t bytes = 0;
  int64_t coordinate = 0;
};

// Memory, by the value that it was made for. Views share it.
struct Held {
  ValueId value = 0;
  int64_t bytes = 0;
  std::vector<ValueId> values = {};  // that lie in it and are not read for the last time yet
};

// What these devices hold over the run.
struct MemoryUseOfRun {
  NodeId at = kNone;             // what runs at the worst moment; kNone: nothing yet
  std::vector<Held> held;        // then, the largest first
  std::vector<int64_t> by_node;  // the most while it runs
};

PeakBytes predict_peak_bytes(const Graph& graph);
// At the worst moment, in the memory of the host of such a device.
int64_t predict_host_bytes(const Graph& graph);
MemoryUseOfRun predict_memory(const Graph& graph, PeakBytes peak);

}  // namespace spmdx
