// SPDX-License-Identifier: Apache-2.0
// Step time: how long a step takes, where devices have a processor each, and where they share some.
#pragma once
#include "passes/strategy/timeline.h"

namespace spmdx {

// Of a plan, by the cost model.
struct StepTime {
  int64_t busy_ns = 0;  // of a processor, for a device in the mean: kernels, links, and recording what others run
  int64_t end_ns = 0;   // of the last op, where each device has a processor
};

// `spans`: the graph's time line.
StepTime step_time(const Graph& graph, const Topology& topology, const std::vector<Span>& spans);
// What `time` comes to on the graph's devices.
int64_t step_ns(const Graph& graph, const Topology& topology, const StepTime& time);
// The same of the graph's own time line. REQUIRES: a compiled graph.
int64_t step_ns(const Graph& graph, const Topology& topology);

}  // namespace spmdx
