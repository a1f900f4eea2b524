// SPDX-License-Identifier: Apache-2.0
// Schedules of pipelines from Python: their two text forms, whether they can run, and their simulation.
#include "passes/pipeline/check.h"
#include "passes/pipeline/make_schedule.h"
#include "passes/pipeline/schedule_csv.h"
#include "passes/pipeline/simulate.h"

#include <pybind11/stl.h>

#include "base/error.h"
#include "bind/bind.h"

namespace spmdx {
namespace {

namespace py = pybind11;
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
  m.def("make_schedule", &make_schedule, "kind"_a, "ranks"_a, "microbatches"_a);
  m.def("parse_schedule", &parse_schedule, "text"_a);
  m.def("parse_schedule_csv", &parse_csv, "text"_a);
}

}  // namespace spmdx
