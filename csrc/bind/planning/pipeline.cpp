// SPDX-License-Identifier: Apache-2.0
// Pipelines from Python: schedules, their two text forms, whether they can run, and their simulation; what parts of a
// model cost by their plans, and the cuts into stages with the shortest step.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include "passes/pipeline/check.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "bind/bind.h"
#include "bind/handles.h"
#include "bridge/backend/aten_names.h"
#include "bridge/recorder/engine.h"
#include "bridge/recorder/recorder.h"
#include "bridge/step/flush.h"
#include "bridge/tensor/abstract.h"
#include "passes/pipeline/in_flight.h"
#include "passes/pipeline/make_schedule.h"
#include "passes/pipeline/schedule_csv.h"
#include "passes/pipeline/simulate.h"
#include "passes/pipeline/stage_cuts.h"
#include "passes/strategy/step_time.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

namespace py = pybind11;
using namespace bind;
using namespace py::literals;
using Times = std::vector<double>;  // of each stage

Simulation simulated(const Schedule& schedule, const Times& forward, const Times& input, const Times& weight,
                     double send) {
  internal_check(forward.size() == input.size() && input.size() == weight.size(), "times of different stages");
  std::vector<StageTimes> times;
  for (size_t stage = 0; stage < forward.size(); ++stage)
    times.push_back({forward[stage], input[stage], weight[stage]});
  py::gil_scoped_release no_gil;
  return simulate(schedule, times, send);
}

py::dict as_dict(const Simulation& simulation, int64_t num_ranks) {
  py::list actions;
  for (const auto& [rank, action, start, end] : simulation.actions)
    actions.append(py::make_tuple(rank, action.chunk * num_ranks + rank, std::string(1, static_cast<char>(action.kind)),
                                  action.microbatch, start, end));
  return py::dict("total"_a = simulation.total, "bubble"_a = simulation.bubble, "idle"_a = simulation.idle,
                  "in_flight"_a = simulation.in_flight, "in_flight_to_input"_a = simulation.in_flight_to_input,
                  "actions"_a = actions);
}

// What a plan costs by the cost model, on the device that has most to do.
struct PlannedCost {
  int64_t ns = 0, wire_bytes = 0, peak_bytes = 0;
  int64_t ops = 0;  // that take time
};

// Ends the recorded graph; nothing where there was none. REQUIRES: planning only.
PlannedCost planned() {
  internal_check(bridge::planning_only(), "a time of what is to run");
  const auto plans = [] {
    const StepCounters counters = bridge::engine().counters();
    return counters.plans_compiled + counters.plan_cache_hits;
  };
  const int64_t before = plans();
  bridge::flush(bridge::GraphEnd::asked);
  const PlanRef plan = bridge::engine().last_plan();
  PlannedCost cost;
  if (plans() == before || !plan) return cost;
  const Graph& graph = plan->executable->graph();
  const Topology& topology = bridge::engine().options().topology;
  const std::vector<Span> spans = time_line(graph, topology);
  cost.ns = step_ns(graph, topology, step_time(graph, topology, spans));
  cost.ops = std::ranges::count_if(spans, [](const Span& span) { return !span.wire; });
  for (const Node& node : graph.nodes) cost.wire_bytes += node.bytes;
  cost.peak_bytes = plan->executable->peak().bytes;
  return cost;
}

// What a device holds of the memory of a tensor, as far as is known: of a view, of the tensor that it is of.
int64_t local_bytes(const at::Tensor& tensor) {
  const bridge::Root& root = require_lazy(tensor, "local_bytes").root();
  const bridge::Recorder::Lock lock;
  const Shape& shape = root.base->sizes;
  const DataRef& data = root.current.data;
  const ShardingRef sharding = root.annotation ? root.annotation->sharding : data ? data->sharding() : nullptr;
  return bytes_on_a_device({bridge::to_dtype(tensor.scalar_type()), shape, false}, sharding);
}

// Of an activation that is sent to the next stage, and of its gradient that comes back.
int64_t both_ways_ns(const MeshHandle& mesh, const std::string& axis, int64_t bytes) {
  if (bytes == 0) return 0;
  const Topology& topology = bridge::engine().options().topology;
  const SubAxisSet along = sub_axis_set(mesh.mesh->sub_axes_of_axis(mesh.mesh->axis_index(axis)));
  const size_t level = level_of(sub_axis_levels(mesh.mesh, topology), along);
  return 2 * topology.cost_ns(Collective::send_recv, bytes, Group(2, level));
}

LayerCost layer_of(const py::handle& row) {
  const auto at = [&](const char* name) { return row[name].cast<int64_t>(); };
  return {at("forward_ns"), at("backward_ns"), at("state_bytes"), at("activation_bytes"), at("send_ns")};
}

// Of layers with these names: the first one of each stage. `microbatches`: of a schedule that has a name.
std::vector<size_t> choose_cuts(const py::list& rows, std::vector<std::string> names, const std::string& schedule,
                                int64_t ranks, int64_t microbatches, std::optional<int64_t> memory_limit) {
  const Schedule table = is_name(schedule) ? make_schedule(schedule, ranks, microbatches) : parse_schedule(schedule);
  StageProblem problem;
  for (const py::handle& row : rows) problem.layers.push_back(layer_of(row));
  problem.names = std::move(names);
  problem.in_flight = in_flight_of_stages(table);
  problem.microbatches = table.num_microbatches();
  problem.chunks = table.num_chunks();
  if (memory_limit) problem.memory_limit = *memory_limit;
  py::gil_scoped_release no_gil;
  return choose_stage_cuts(problem).first;
}

}  // namespace

void bind_pipeline(py::module_& m) {
  py::class_<Schedule>(m, "PipelineSchedule")
      .def_property_readonly("ranks", [](const Schedule& schedule) { return schedule.ranks.size(); })
      .def_property_readonly("chunks", &Schedule::num_chunks)
      .def_property_readonly("microbatches", &Schedule::num_microbatches)
      .def("text", [](const Schedule& schedule) { return str(schedule); })
      .def("csv", &csv)
      .def("check", &check_schedule, py::call_guard<py::gil_scoped_release>())
      .def(
          "simulate",
          [](const Schedule& schedule, const Times& forward, const Times& input, const Times& weight, double send) {
            return as_dict(simulated(schedule, forward, input, weight, send),
                           static_cast<int64_t>(schedule.ranks.size()));
          },
          "forward"_a, "backward_input"_a, "backward_weight"_a, "send"_a);
  m.def("most_stages", [] { return kMostStages; });
  m.def("make_schedule", &make_schedule, "kind"_a, "ranks"_a, "microbatches"_a);
  m.def("parse_schedule", &parse_schedule, "text"_a);
  m.def("parse_schedule_csv", &parse_csv, "text"_a);
  py::class_<PlannedCost>(m, "PlannedCost")
      .def_readonly("ns", &PlannedCost::ns)
      .def_readonly("wire_bytes", &PlannedCost::wire_bytes)
      .def_readonly("peak_bytes", &PlannedCost::peak_bytes)
      .def_readonly("ops", &PlannedCost::ops);
  m.def("planned", planned, py::call_guard<py::gil_scoped_release>());
  m.def("local_bytes", local_bytes, "tensor"_a, py::call_guard<py::gil_scoped_release>());
  m.def("both_ways_ns", both_ways_ns, "mesh"_a, "axis"_a, "bytes"_a);
  m.def("choose_cuts", choose_cuts, "layers"_a, "names"_a, "schedule"_a, "ranks"_a, "microbatches"_a,
        "memory_limit"_a.none(true));
}

}  // namespace spmdx
