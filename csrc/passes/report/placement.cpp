// SPDX-License-Identifier: Apache-2.0
// Placement: segments and sends of a step that is placed by time.
#include "passes/report/placement.h"

#include <algorithm>

#include "graph/places.h"
#include "passes/kinds/bound/least.h"
#include "passes/kinds/makespan.h"
#include "passes/places/places.h"

namespace spmdx {
namespace {

std::vector<PlacedSegment> segments_of(const PlacedStep& step) {
  const Graph& graph = step.graph;
  std::vector<PlacedSegment> by_task(step.tasks.tasks.size());
  std::vector<int64_t> longest(by_task.size(), -1);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const uint32_t task = step.tasks.of_node[id];
    PlacedSegment& segment = by_task[task];
    segment.device = step.assignment.device[task];
    const int64_t ns = step.ns_of_node[id][segment.device];
    segment.ops += ns > 0;
    if (ns <= longest[task]) continue;
    longest[task] = ns;
    segment.op = graph.nodes[id].call->op;
    segment.source = graph.nodes[id].source;
  }
  std::vector<PlacedSegment> segments;
  for (const uint32_t task : step.assignment.order) {
    PlacedSegment& segment = by_task[task];
    segment.start_ns = step.assignment.start[task], segment.end_ns = step.assignment.end[task];
    if (segment.ops > 0) segments.push_back(segment);
  }
  return segments;
}

// As the pass of places makes them, so those of values that are made again where they are read are not among them.
std::vector<PlacedSend> sends_between_places(const Graph& placed) {
  std::vector<PlacedSend> sends;
  for (const Node& node : placed.nodes) {
    if (!changes_place(placed, node) || node.bytes == 0) continue;
    const Value& sent = placed.values[node.inputs[0]];
    const Place from = sent.sharding->place, to = place_of(placed, node);
    if (to.whole()) continue;
    const SourceId source = source_of(placed, node.inputs[0]);
    sends.push_back({static_cast<uint32_t>(from.stage), static_cast<uint32_t>(to.stage), node.bytes,
                     source ? source : node.source,
                     sent.producer == kNone ? "an input" : placed.nodes[sent.producer].call->op});
  }
  return sends;
}

// Where the tasks run when all work is the device's: inputs and outputs lie where they do. Empty: it cannot run some.
std::vector<uint32_t> devices_of_work_at(uint32_t device, const StepTasks& step) {
  std::vector<uint32_t> devices;
  for (const Task& task : step.tasks)
    devices.push_back(static_cast<uint32_t>(std::ranges::min_element(task.ns) - task.ns.begin()));
  for (const uint32_t task : step.of_node) {
    if (step.tasks[task].ns[device] == kNever) return {};
    devices[task] = device;
  }
  return devices;
}

// By device, what the step takes when all of it runs there, with sends of what lies elsewhere; -1: it cannot.
std::vector<int64_t> alone_ns(const PlacedStep& step) {
  std::vector<int64_t> all;
  for (uint32_t device = 0; device < step.devices.memory.size(); ++device) {
    const std::vector<uint32_t> at = devices_of_work_at(device, step.tasks);
    const bool runs = !at.empty() || step.tasks.tasks.empty();
    all.push_back(runs ? makespan_ns(step.tasks.tasks, step.devices, at).value_or(-1) : -1);
  }
  return all;
}

}  // namespace

PlacedSummary summarise_placement(const PlacedStep& step) {
  PlacedSummary all;
  all.kinds = step.kinds;
  all.segments = segments_of(step);
  all.sends = sends_between_places(with_places(step));
  all.ns = step.assignment.ns;
  all.least_ns = least_makespan_ns(step.tasks.tasks, step.devices);
  all.alone_ns = alone_ns(step);
  return all;
}

}  // namespace spmdx
