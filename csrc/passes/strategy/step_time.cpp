// SPDX-License-Identifier: Apache-2.0
// Step time: what devices do in the mean, and when the last of them ends.
#include "passes/strategy/step_time.h"

#include "graph/places.h"

namespace spmdx {
namespace {

int64_t ranks_of(const Graph& graph) {
  const int axis = axis_of_places(graph);
  return axis < 0 ? 1 : graph.mesh->axes()[axis].size;
}

// Of all ranks. What is sent keeps both ends busy, and a process records the ops that others run.
int64_t busy_ns(const Span& span, const Topology& topology, int64_t ranks) {
  const int64_t ns = span.end_ns - span.start_ns;
  if (span.wire) {
    const int64_t busy_ranks = span.rank < 0 ? ranks : span.from < 0 || span.from == span.rank ? 1 : 2;
    return busy_ranks * topology.levels[span.level].busy_ns(ns);
  }
  return span.rank < 0 ? ranks * ns : ns + (ranks - 1) * topology.record_ns;
}

}  // namespace

StepTime step_time(const Graph& graph, const Topology& topology, const std::vector<Span>& spans) {
  const int64_t ranks = ranks_of(graph);
  int64_t of_all = 0;
  for (const Span& span : spans) of_all += busy_ns(span, topology, ranks);
  return {of_all / ranks, last_end_ns(spans)};
}

int64_t step_ns(const Graph& graph, const Topology& topology, const StepTime& time) {
  return topology.shared_ns(time.busy_ns, time.end_ns, graph.mesh ? graph.mesh->size() : 1);
}

int64_t step_ns(const Graph& graph, const Topology& topology) {
  return step_ns(graph, topology, step_time(graph, topology, time_line(graph, topology)));
}

}  // namespace spmdx
