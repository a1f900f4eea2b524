// SPDX-License-Identifier: Apache-2.0
// Profiles, measured times, memory counters and values that are there already, from Python.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <unordered_map>

#include "bind/bind.h"
#include "bind/handles.h"
#include "bridge/plans/plan_log.h"
#include "bridge/python/source.h"
#include "bridge/recorder/engine.h"
#include "bridge/recorder/recorder.h"
#include "bridge/step/measured.h"
#include "bridge/step/watch.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"
#include "passes/report/flops.h"
#include "passes/strategy/step_time.h"
#include "runtime/data/held_bytes.h"

namespace spmdx {
namespace {

namespace py = pybind11;
using namespace py::literals;
using bridge::MeasuredKind;
using bridge::MeasuredRange;

py::list axes(const Graph& graph, const Node& node) {
  if (!is_collective(node)) return py::list();
  return py::cast(axis_names(*graph.mesh, sub_axis_list(node.sub_axes)));
}

// Devices of the mesh that this process plays.
size_t devices_here(const Graph& graph) {
  if (!graph.mesh) return 1;
  const Processes processes = bridge::engine().comm().processes();
  return positions_of(processes, processes.here, *graph.mesh).size();
}

// What is predicted, by node.
py::dict plan_row(const Plan& plan) {
  const Graph& graph = plan.executable->graph();
  const Topology& topology = bridge::engine().options().topology;
  const std::vector<Span> spans = time_line(graph, topology);
  py::dict nodes;
  for (const Span& span : spans) {
    const Node& node = graph.nodes[span.node];
    nodes[py::int_(span.node)] = py::make_tuple(label(node), moves_bytes(node), axes(graph, node), node.bytes,
                                                bridge::source_text(node.source), span.start_ns, span.end_ns);
  }
  return py::dict("mesh"_a = graph.mesh ? py::cast(graph.mesh->str()) : py::none(), "nodes"_a = nodes,
                  "devices"_a = devices_here(graph), "flops"_a = count_flops(graph).device,
                  "wire_bytes"_a = plan.wire_bytes,
                  "step_ns"_a = step_ns(graph, topology, step_time(graph, topology, spans)));
}

const char* kind_name(MeasuredKind kind) {
  return kind == MeasuredKind::step ? "step" : kind == MeasuredKind::wait ? "wait" : "node";
}

py::dict range_row(const MeasuredRange& range, const Graph& graph) {
  py::dict row("kind"_a = kind_name(range.kind), "step"_a = range.step, "node"_a = range.node,
               "start_ns"_a = range.begin_ns, "end_ns"_a = range.end_ns, "longest_ns"_a = range.longest_ns,
               "shards"_a = range.shards);
  if (range.kind == MeasuredKind::step) return row;
  const Node& node = graph.nodes[range.node];
  row["name"] = label(node);
  row["wire"] = moves_bytes(node);
  row["axes"] = axes(graph, node);
  row["bytes"] = node.bytes;
  row["source"] = bridge::source_text(node.source);
  return row;
}

py::dict measured() {
  const bridge::Measured all = bridge::take_measured();
  std::unordered_map<const Plan*, size_t> numbers;
  py::list plans, steps, ranges;
  for (const PlanRef& plan : all.steps) {
    const auto [entry, fresh] = numbers.emplace(plan.get(), numbers.size());
    if (fresh) plans.append(plan_row(*plan));
    steps.append(entry->second);
  }
  for (const MeasuredRange& range : all.ranges)
    ranges.append(range_row(range, all.steps.at(range.step)->executable->graph()));
  return py::dict("plans"_a = plans, "steps"_a = steps, "ranges"_a = ranges);
}

// A tensor that shows what `tensor` shows now, whatever is written to that later. A whole tensor needs no op for it.
at::Tensor snapshot(const at::Tensor& tensor) {
  const bridge::Recorder::Lock lock;
  bridge::LazyTensor& lazy = bind::require_lazy(tensor, "metrics");
  bridge::Recorder& recorder = bridge::Recorder::instance();
  const DataRef& data = lazy.root().current.data;
  const bool whole_data = !lazy.chain() && data;
  bridge::LazyValue value = whole_data ? bridge::LazyValue{0, kNone, data} : recorder.lazy(recorder.read(lazy));
  return bridge::make_tensor(std::move(value), bridge::share(bridge::meta_of(tensor)));
}

// Whether a read of a whole tensor neither ends the step that is recorded, nor waits, nor asks other processes.
bool is_computed(const at::Tensor& tensor) {
  const bridge::Recorder::Lock lock;
  const DataRef& data = bind::require_lazy(tensor, "metrics").root().current.data;
  if (!data || data->is_abstract() || !data->ready()) return false;
  if (bridge::engine().comm().processes().count == 1 || !data->sharding() || data->lost()) return true;
  return data->sharding()->replicated() && !data->wait().empty();
}

}  // namespace

void bind_watch(py::module_& m) {
  m.def("watch_for_profiler", &bridge::watch_for_profiler, py::arg("told"));
  m.def("watch_for_times", &bridge::watch_for_times, py::arg("taken"));
  m.def("take_measured", measured);
  m.def(
      "log_plans",
      [](std::function<void(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t)> listener) {
        // Never freed: plans may be made until the interpreter ends.
        auto* const kept = new auto(std::move(listener));
        bridge::log_plans([kept](const bridge::PlanNote& note) {
          (*kept)(note.ops, note.devices, note.collectives, note.wire_bytes, note.peak_bytes, note.took_ns);
        });
      },
      py::arg("listener"));
  m.def("planning_ns", [] {
    const int64_t since = planning_since_ns();
    return since ? now_ns() - since : 0;
  });
  m.def("work_of_last", []() -> py::object {
    const PlanRef plan = bridge::engine().last_plan();
    if (!plan) return py::none();
    const Graph& graph = plan->executable->graph();
    return py::make_tuple(static_cast<double>(count_flops(graph).whole), graph.mesh ? graph.mesh->size() : 1,
                          seconds_at_peak(graph, bridge::engine().options().topology.hardware));
  });
  m.def("snapshot", snapshot, py::arg("tensor"));
  m.def("is_computed", is_computed, py::arg("tensor"));
  m.def("held_bytes", &held_bytes);
  m.def("held_peak", &held_peak);
  m.def("reset_held_peak", &reset_held_peak);
  m.def("wait_for_queued", [] { bridge::engine().wait(); }, py::call_guard<py::gil_scoped_release>());
}

}  // namespace spmdx
