// SPDX-License-Identifier: Apache-2.0
// Parallelism from Python: what there is to choose from, and what each would take.
#include "passes/parallelism/parallelism.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "base/error.h"
#include "bind/bind.h"
#include "bridge/recorder/engine.h"
#include "passes/parallelism/estimate.h"
#include "passes/parallelism/settle.h"
#include "passes/pipeline/make_schedule.h"
#include "passes/report/flops.h"
#include "passes/report/pipeline.h"
#include "passes/report/received.h"
#include "passes/report/recomputed.h"
#include "passes/strategy/step_time.h"

namespace spmdx {
namespace {

namespace py = pybind11;
using namespace py::literals;

PartCost part_from(const py::handle& row) {
  const auto at = [&](const char* name) { return row[name].cast<int64_t>(); };
  return {.forward_ns = at("forward_ns"),
          .backward_ns = at("backward_ns"),
          .wire_bytes = at("wire_bytes"),
          .activation_bytes = at("activation_bytes"),
          .transient_bytes = at("transient_bytes"),
          .output_bytes = at("output_bytes"),
          .parameter_bytes = at("parameter_bytes"),
          .gradient_bytes = at("gradient_bytes"),
          .state_bytes = at("state_bytes"),
          .fixed_bytes = at("fixed_bytes"),
          .accumulate_ns = at("accumulate_ns"),
          .update_ns = at("update_ns"),
          .ops = at("ops"),
          .accumulate_ops = at("accumulate_ops"),
          .update_ops = at("update_ops")};
}

ModelCost model_from(const py::list& parts, std::vector<size_t> order) {
  ModelCost cost;
  for (const py::handle& part : parts) cost.parts.push_back(part_from(part));
  internal_check(!order.empty(), "a model without parts");
  for (size_t part : order) internal_check(part < cost.parts.size(), "no such part");
  cost.order = std::move(order);
  return cost;
}

// What the last plan says of a step, and of one with so many microbatches.
py::dict cost_of_last(int64_t microbatches) {
  const PlanRef plan = bridge::engine().last_plan();
  internal_check(plan != nullptr, "nothing was planned");
  const Graph& graph = plan->executable->graph();
  const Topology& topology = bridge::engine().options().topology;
  int64_t recomputed_ns = 0;
  for (const Recomputed& row : recomputed(graph, topology)) recomputed_ns += row.ns;
  return py::dict("step_ns"_a = step_ns(graph, topology), "wire_bytes"_a = most_received(graph),
                  "peak_bytes"_a = plan->executable->peak().bytes, "recomputed_ns"_a = recomputed_ns,
                  "peak_seconds"_a = seconds_at_peak(graph, topology.hardware), "nodes"_a = graph.nodes.size(),
                  "longer_ns"_a = longer_ns(graph, topology, microbatches));
}

// Throws ShardingError where the schedule is none, or not one of so many microbatches.
Parallelism parallelism_of(int64_t data, int64_t model, int64_t pipe, int64_t microbatches, int zero,
                           const std::string& schedule) {
  Parallelism made{.data = data, .model = model, .pipe = pipe, .microbatches = microbatches, .zero = zero};
  if (pipe == 1) return made;
  made.chunks = make_schedule(schedule, pipe, microbatches).num_chunks();
  made.schedule = schedule;
  return made;
}

void bind_shapes(py::module_& m) {
  py::class_<Parallelism>(m, "Parallelism")
      .def(py::init(&parallelism_of), "data"_a, "model"_a, "pipe"_a, "microbatches"_a, "zero"_a, "schedule"_a)
      .def_readonly("data", &Parallelism::data)
      .def_readonly("model", &Parallelism::model)
      .def_readonly("pipe", &Parallelism::pipe)
      .def_readonly("microbatches", &Parallelism::microbatches)
      .def_readonly("zero", &Parallelism::zero)
      .def_readonly("schedule", &Parallelism::schedule)
      .def_readonly("chunks", &Parallelism::chunks)
      .def("with_microbatches",
           [](Parallelism parallelism, int64_t count) {
             parallelism.microbatches = count;
             return parallelism;
           })
      .def("__eq__", [](const Parallelism& a, const Parallelism& b) { return a == b; });
  m.def(
      "parallelisms",
      [](int64_t devices, int64_t samples, int64_t most_model, int64_t most_stages, std::vector<int> zero,
         std::vector<std::string> schedules) {
        return parallelisms({devices, samples, most_model, most_stages, std::move(zero), std::move(schedules)});
      },
      "devices"_a, "samples"_a, "most_model"_a, "most_stages"_a, "zero"_a, "schedules"_a);
}

}  // namespace

void bind_parallelism(py::module_& m) {
  bind_shapes(m);
  py::class_<ModelCost>(m, "ModelCost").def(py::init(&model_from), "parts"_a, "order"_a);
  py::class_<Estimate>(m, "Estimate")
      .def_readonly("step_ns", &Estimate::step_ns)
      .def_readonly("peak_bytes", &Estimate::peak_bytes)
      .def_readonly("wire_bytes", &Estimate::wire_bytes)
      .def_readonly("recomputed_ns", &Estimate::recomputed_ns)
      .def_readonly("short_bytes", &Estimate::short_bytes)
      .def_readonly("first", &Estimate::first);
  m.def(
      "estimate",
      [](const Parallelism& parallelism, const ModelCost& cost, int64_t memory_limit) {
        return estimate(parallelism, cost, bridge::engine().options().topology, memory_limit);
      },
      "parallelism"_a, "cost"_a, "memory_limit"_a, py::call_guard<py::gil_scoped_release>());
  m.def("cost_of_last", cost_of_last, "microbatches"_a);
  m.def("settle", &settle, "num_options"_a, "starts"_a, "descents"_a, "cost"_a);  // calls back, with the GIL
}

}  // namespace spmdx
