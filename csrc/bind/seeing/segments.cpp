// SPDX-License-Identifier: Apache-2.0
// Segments of a plan: where they begin, what they compute, and what came of compiling them.
#include "bind/seeing/segments.h"

#include "bridge/python/gil.h"
#include "bridge/python/source.h"

namespace spmdx {
namespace {

const char* state_name(CompileState state) {
  switch (state) {
    case CompileState::unknown:
    case CompileState::waiting:
      return "waiting";
    case CompileState::compiled:
      return "compiled";
    case CompileState::refused:
      return "refused";
  }
  return "";
}

}  // namespace

pybind11::dict segments_report(const Plan& plan) {
  using namespace pybind11::literals;
  const SegmentsOfPlan all = [&] {
    const bridge::NoGil no_gil;
    return plan.executable->segments();
  }();
  const Graph& graph = plan.executable->graph();
  pybind11::list rows;
  for (const SegmentStanding& segment : all.segments)
    rows.append(pybind11::dict("source"_a = bridge::source_text(graph.nodes[segment.first].source),
                               "device"_a = segment.device, "ops"_a = segment.ops, "flops"_a = segment.flops,
                               "state"_a = state_name(segment.standing.state), "why"_a = segment.standing.why,
                               "compile_ns"_a = segment.standing.compile_ns, "of_ops_ns"_a = segment.of_ops_ns,
                               "ns"_a = segment.ns, "text"_a = segment.text));
  return pybind11::dict("segments"_a = rows, "ops"_a = all.ops, "flops"_a = all.flops);
}

}  // namespace spmdx
