// SPDX-License-Identifier: Apache-2.0
// Stages by time: what each kind takes for each node, what sends take, and the assignment's answer.
#include "passes/places/stages_by_time.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "graph/dtypes.h"
#include "graph/places.h"
#include "passes/places/gradient_sums.h"
#include "passes/places/movement.h"
#include "passes/strategy/clock.h"
#include "sharding/notation.h"

namespace spmdx {
namespace {

class Times {
 public:
  Times(const Graph& graph, const CompileOptions& options)
      : graph_(graph),
        options_(options),
        axis_(graph.mesh->axis_index(graph.kinds)),
        kinds_(kinds_along(*graph.mesh, axis_, options.kinds)) {
    for (const DeviceKind& kind : options.kinds.kinds) {
      topologies_.push_back(options.topology);
      topologies_.back().hardware = kind.hardware;
    }
  }

  std::vector<std::vector<int64_t>> of_nodes() const {
    std::vector<std::vector<int64_t>> ns;
    for (const Node& node : graph_.nodes) ns.push_back(of(node));
    return ns;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const uint32_t number : kinds_) all.push_back(kind(number).name);
    return all;
  }

  Devices devices() const {
    Devices all;
    const std::vector<uint8_t> levels = sub_axis_levels(graph_.mesh, options_.topology);
    const size_t level = level_of(levels, sub_axis_set(graph_.mesh->sub_axes_of_axis(axis_)));
    const Group pair(2, level);
    const int64_t start = options_.topology.cost_ns(Collective::send_recv, 1, pair);
    const int64_t gigabyte = options_.topology.cost_ns(Collective::send_recv, 1'000'000'000, pair) - start;
    for (const uint32_t from : kinds_) {
      const int64_t told = kind(from).hardware.memory_bytes;
      all.memory.push_back(std::min(told ? told : kNoLimit, options_.memory_limit));
      all.links.emplace_back();
      for (const uint32_t to : kinds_)
        all.links.back().push_back({start, gigabyte / 1'000'000 + through_hosts(from, to)});
    }
    return all;
  }

 private:
  const DeviceKind& kind(uint32_t number) const { return options_.kinds.kinds[number]; }

  // Picoseconds of a byte from a memory to that of its host, and from there.
  int64_t through_hosts(uint32_t from, uint32_t to) const {
    int64_t ps = 0;
    for (const uint32_t end : {from, to})
      if (kind(end).own_memory) ps += static_cast<int64_t>(1e12 / kind(end).hardware.host_bytes_per_second);
    return ps;
  }

  std::vector<int64_t> of(const Node& node) const {
    const bool moves = is_collective(node) || (!node.call->outputs.empty() && movement_of(graph_, node.output));
    std::vector<int64_t> by_kind;
    for (uint32_t k = 0; k < options_.kinds.kinds.size(); ++k) {
      const bool runs = moves || kind(k).runs(*node.call);
      by_kind.push_back(runs ? clock_ns(graph_, node, topologies_[k]) : kNever);
    }
    std::vector<int64_t> ns;
    for (const uint32_t number : kinds_) ns.push_back(by_kind[number]);
    if (std::ranges::all_of(ns, [](int64_t time) { return time == kNever; })) refuse(node);
    return ns;
  }

  // Which no kind takes, though one has the op: " of f64, i64".
  std::string of_dtypes(const Call& call) const {
    std::string names;
    if (std::ranges::none_of(kinds_, [&](uint32_t number) { return kind(number).runs(call.op); })) return names;
    for (const DType dtype : dtypes_of(call)) names += (names.empty() ? " of " : ", ") + std::string(name(dtype));
    return names;
  }

  [[noreturn]] void refuse(const Node& node) const {
    std::string names;
    for (const uint32_t number : kinds_) names += (names.empty() ? "" : ", ") + kind(number).name;
    const std::string line = options_.source ? options_.source(node.source) : "";
    throw ShardingError((line.empty() ? "" : line + ": ") + "no device along axis '" + graph_.kinds + "' runs " +
                        node.call->op + of_dtypes(*node.call) + "; they are of kinds " + names +
                        ". Expected one that runs it. Add a device of kind 'cpu', which runs all ops.");
  }

  const Graph& graph_;
  const CompileOptions& options_;
  const int axis_;
  const std::vector<uint32_t> kinds_;  // by coordinate
  std::vector<Topology> topologies_;   // by kind
};

// As it is written; several of them may be the same devices.
int32_t stage_in(const ShardingRef& sharding) {
  return !sharding || sharding->place.whole() ? kAllStages : static_cast<int32_t>(sharding->place.stage);
}

// Coordinates of stages; negative: all.
std::vector<int32_t> coordinates(std::vector<int32_t> stages, size_t devices) {
  for (int32_t& stage : stages)
    if (stage >= 0) stage %= static_cast<int32_t>(devices);
  return stages;
}

std::vector<int32_t> stages_of_inputs(const Graph& graph) {
  std::vector<int32_t> stages;
  for (const Input& input : graph.inputs) {
    const int32_t told = stage_in(input.annotation);
    stages.push_back(told >= 0 || lies_on_another_mesh(graph, input) ? told : stage_in(input.physical));
  }
  return stages;
}

// An output without a place of its own lies where the tensor did that it replaces, or else where it is made.
std::vector<int32_t> stages_of_outputs(const Graph& graph) {
  std::vector<int32_t> stages;
  for (const Output& output : graph.outputs) {
    ShardingRef lies = output.annotation;
    if (!lies && output.tied != kNone) {
      const Input& tied = graph.inputs[output.tied];
      lies = tied.annotation || lies_on_another_mesh(graph, tied) ? tied.annotation : tied.physical;
    }
    stages.push_back(stage_in(lies));
  }
  return stages;
}

// What is new to the devices goes to those alone that read it.
void place_inputs(const Graph& graph, const std::vector<int32_t>& told, Stages& stages) {
  const std::vector<std::vector<NodeId>> readers = users(graph);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Input& input = graph.inputs[i];
    int32_t& stage = stages.of_value[input.value];
    stage = told[i];
    if (stage >= 0 || input.physical || readers[input.value].empty()) continue;
    const int32_t first = stages.of_node[readers[input.value].front()];
    const auto is_there = [&](NodeId reader) { return stages.of_node[reader] == first; };
    if (std::ranges::all_of(readers[input.value], is_there)) stage = first;
  }
}

// Says which devices lack memory.
TaskAssignment assigned(const std::vector<Task>& tasks, const Devices& devices,
                        const std::optional<std::vector<uint32_t>>& start, const Graph& graph,
                        const CompileOptions& options) {
  try {
    return start ? assign_with_few_sends(tasks, devices, *start) : assign_tasks(tasks, devices);
  } catch (const TaskMemoryError& error) {
    const int axis = graph.mesh->axis_index(graph.kinds);
    const uint32_t kind = kinds_along(*graph.mesh, axis, options.kinds)[error.device];
    throw ShardingError("devices at " + graph.kinds + "=" + std::to_string(error.device) + ", of kind " +
                        options.kinds.kinds[kind].name + ", lack " + std::to_string(error.bytes_short) +
                        " bytes for their share of the step, of " + std::to_string(devices.memory[error.device]) +
                        " that each has. Expected all that the step reads and leaves to fit. Add "
                        "devices, cut tensors by another axis, or set a higher limit.");
  }
}

// What is known before it is known where nodes run.
Stages phases_of(const Graph& graph) {
  Stages stages;
  stages.axis = graph.mesh->axis_index(graph.kinds);
  stages.of_node.assign(graph.nodes.size(), kAllStages);
  stages.of_value.assign(graph.values.size(), kAllStages);
  stages.after_backward.assign(graph.values.size(), false);
  stages.forward.assign(graph.nodes.size(), false);
  for (const Node& node : graph.nodes) {
    stages.phase.push_back(node.recorded.phase);
    for (size_t r = 0; r < node.call->outputs.size(); ++r)
      stages.after_backward[node.output + r] = is_backward(node.recorded.phase.number);
  }
  return stages;
}

// Each device will send one sum of the terms that it makes, not each term.
SumsOfTasks not_split_yet(const GradientSums& sums) {
  SumsOfTasks all;
  for (const bool inner : sums.inner) all.of_node.push_back(inner ? 0 : kAllStages);
  all.is_sent_free = sums.inner;
  for (const auto& [node, terms] : sums.terms) all.is_sent_free[node] = true;
  return all;
}

// By task: the device of its longest node; where the task cannot run there, one on which it can.
std::vector<uint32_t> devices_of_tasks(const StepTasks& tasks, const std::vector<int32_t>& of_node,
                                       const std::vector<std::vector<int64_t>>& ns) {
  std::vector<uint32_t> device;
  if (of_node.empty()) return device;
  std::vector<int64_t> longest(tasks.tasks.size(), -1);
  for (const Task& task : tasks.tasks)
    device.push_back(static_cast<uint32_t>(std::ranges::min_element(task.ns) - task.ns.begin()));
  for (NodeId id = 0; id < of_node.size(); ++id) {
    const uint32_t task = tasks.of_node[id];
    const int32_t at = of_node[id];
    if (at < 0 || tasks.tasks[task].ns[static_cast<size_t>(at)] == kNever) continue;
    if (const int64_t took = ns[id][static_cast<size_t>(at)]; took > longest[task])
      longest[task] = took, device[task] = static_cast<uint32_t>(at);
  }
  return device;
}

// `before`: by node, where it ran when its tasks were other ones; empty: they never were.
PlacedStep placed(Graph graph, const CompileOptions& options, const SumsOfTasks& sums,
                  const std::vector<int32_t>& before) {
  const Times times(graph, options);
  PlacedStep step;
  step.ns_of_node = times.of_nodes();
  step.devices = times.devices();
  step.kinds = times.names();
  const Devices& devices = step.devices;
  const size_t count = devices.memory.size();
  const std::vector<int32_t> told = stages_of_inputs(graph);
  const int64_t least = count > 1 ? devices.links[0][1].latency_ns : 0;
  step.tasks = tasks_of(graph, count, step.ns_of_node, coordinates(told, count),
                        coordinates(stages_of_outputs(graph), count), least, sums);
  step.devices.shared = step.tasks.shared;
  std::optional<std::vector<uint32_t>> start;
  if (!sums.of_node.empty()) start = devices_of_tasks(step.tasks, before, step.ns_of_node);
  step.assignment = assigned(step.tasks.tasks, devices, start, graph, options);
  step.stages = phases_of(graph);
  Stages& stages = step.stages;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    stages.of_node[id] = static_cast<int32_t>(step.assignment.device[step.tasks.of_node[id]]);
    for (size_t r = 0; r < graph.nodes[id].call->outputs.size(); ++r)
      stages.of_value[graph.nodes[id].output + r] = stages.of_node[id];
  }
  place_inputs(graph, told, stages);
  step.graph = std::move(graph);
  return step;
}

}  // namespace

std::vector<uint32_t> kinds_along(const Mesh& mesh, int axis, const DeviceKinds& kinds) {
  std::vector<uint32_t> along(static_cast<size_t>(mesh.axes()[static_cast<size_t>(axis)].size), kNone);
  const std::string name = mesh.axes()[static_cast<size_t>(axis)].name;
  for (int64_t position = 0; position < mesh.size(); ++position) {
    const auto device = static_cast<size_t>(mesh.device_ids()[static_cast<size_t>(position)]);
    if (device >= kinds.of_device.size())
      throw ShardingError("device " + std::to_string(device) + " of " + mesh.str() + " is of no kind, as " +
                          std::to_string(kinds.of_device.size()) +
                          " devices have one. Expected a kind for each. Name it in spmdx.runtime.set_devices.");
    for (size_t c = 0; c < along.size(); ++c) {
      if (!lies_at(mesh, Place{axis, static_cast<int64_t>(c)}, position)) continue;
      const uint32_t kind = kinds.of_device[device];
      if (along[c] != kNone && along[c] != kind)
        throw ShardingError("devices at " + name + "=" + std::to_string(c) + " are of kinds " +
                            kinds.kinds[along[c]].name + " and " + kinds.kinds[kind].name +
                            ". Expected one kind at each coordinate. Make the mesh of the devices in another order.");
      along[c] = kind;
    }
  }
  return along;
}

PlacedStep placed_by_time(Graph graph, const CompileOptions& options) {
  if (!graph.schedule.empty())
    throw ShardingError("axis '" + graph.kinds +
                        "' has devices of several kinds, by which steps are placed, and the step has a pipeline. "
                        "Expected one of both. Call spmdx.auto.place(None), or leave spmdx.nn.pipeline out.");
  const GradientSums sums = gradient_sums(graph, phases_of(graph));
  const auto is_long = [](const auto& sum) { return sum.second.size() > 2; };  // others are no loop's
  if (std::ranges::none_of(sums.terms, is_long)) return placed(std::move(graph), options, {}, {});
  PlacedStep open = placed(std::move(graph), options, not_split_yet(sums), {});
  SplitSums split{std::move(open.graph), open.stages.of_node, {}};
  if (auto found = split_gradient_sums(split.graph, open.stages)) split = std::move(*found);
  return placed(std::move(split.graph), options, {std::move(split.adds), {}}, split.of_node);
}

}  // namespace spmdx
