// SPDX-License-Identifier: Apache-2.0
// Reports from Python: what a plan decided, as plain dicts.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "bind/bind.h"
#include "bind/handles.h"
#include "bind/planning/kinds.h"
#include "bind/seeing/memory.h"
#include "bind/seeing/segments.h"
#include "bind/seeing/traces.h"
#include "bridge/backend/aten_kernel.h"
#include "bridge/python/source.h"
#include "bridge/recorder/engine.h"
#include "bridge/step/flush.h"
#include "passes/report/balance.h"
#include "passes/report/flops.h"
#include "passes/report/gathered.h"
#include "passes/report/load.h"
#include "passes/report/pipeline.h"
#include "passes/strategy/step_time.h"
#include "rules/rule/rule.h"
#include "runtime/data/check.h"
#include "sharding/notation.h"
#include "sharding/spec.h"

namespace spmdx {
namespace {

namespace py = pybind11;
using namespace bind;
using namespace py::literals;

py::dict collective_row(const Graph& graph, const Node& node) {
  const Value& in = graph.value(node.inputs.at(0));
  return py::dict("kind"_a = std::string(name(collective_kind(node))),
                  "axes"_a = axis_names(*graph.mesh, sub_axis_list(node.sub_axes)),
                  "group_size"_a = graph.mesh->group_size(node.sub_axes), "dtype"_a = std::string(name(in.type.dtype)),
                  "bytes"_a = node.bytes, "way"_a = node.native ? "native" : "direct", "count"_a = 1,
                  "cause"_a = node.cause, "source"_a = bridge::source_text(node.source));
}

// Why a result is partial: "its operands are cut: f32[16, 32@model], f32[32@model, 8]". Empty if no operand is cut.
std::string cut_operands(const Graph& graph, const Node& node) {
  std::string text;
  for (ValueId input : node.inputs) {
    const Value& operand = graph.value(input);
    if (operand.sharding && operand.sharding->used())
      text += (text.empty() ? "its operands are cut: " : ", ") + str(operand.type, operand.sharding);
  }
  return text;
}

std::string at_line(SourceId source) {
  const std::string line = bridge::source_text(source);
  return line.empty() ? line : " at " + line;
}

// Why a value is cut: "annotation of w at train.py:41, through aten.mm at train.py:50". `node` is the node that made
// the value, or null for an input.
std::string provenance(const Graph& graph, const Value& value, const Node* node) {
  const Provenance& why = value.why;
  std::string text = why.origin.empty() && why.source ? "annotation" : why.origin;
  if (!text.empty()) text += at_line(why.source);
  if (why.through) text += ", through " + why.through->op + at_line(why.at);
  if (text.empty() && node && value.sharding && value.sharding->partial) text = cut_operands(graph, *node);
  return text.empty() ? "nothing cuts it" : text;
}

py::dict value_row(const Graph& graph, ValueId id, const Node* node, const std::string& op, SourceId source) {
  const Value& value = graph.value(id);
  return py::dict("op"_a = op, "shape"_a = py::tuple(py::cast(value.type.shape)),
                  "dtype"_a = std::string(name(value.type.dtype)), "sharding"_a = str(value.type, value.sharding),
                  "provenance"_a = provenance(graph, value, node), "source"_a = bridge::source_text(source));
}

py::list timeline(const Plan& plan, const MemoryUseOfRun& use) {
  const Graph& graph = plan.executable->graph();
  py::list rows;
  for (const Span& span : time_line(graph, bridge::engine().options().topology)) {
    const Node& node = graph.nodes[span.node];
    const py::object rank = span.rank < 0 ? py::none() : py::object(py::int_(span.rank));
    rows.append(py::dict("rank"_a = rank, "level"_a = span.level, "lane"_a = span.wire ? "wire" : "compute",
                         "name"_a = label(node), "start_ns"_a = span.start_ns, "end_ns"_a = span.end_ns,
                         "held_bytes"_a = use.by_node[span.node], "source"_a = bridge::source_text(node.source)));
  }
  return rows;
}

py::list load(const Graph& graph) {
  py::list rows;
  for (const DeviceLoad& of : loads(graph, bridge::engine().options().topology))
    rows.append(py::dict("device"_a = of.device, "computing_ns"_a = of.computing_ns, "behind_ns"_a = of.behind_ns,
                         "exposed_ns"_a = of.exposed_ns, "idle_ns"_a = of.idle_ns));
  return rows;
}

py::list balance(const Graph& graph) {
  py::list rows;
  for (const Repeated& same : repeated_products(graph)) {
    const std::string spec = same.cut ? str(to_spec(*same.cut)) : "";
    rows.append(py::dict("source"_a = bridge::source_text(same.source), "op"_a = same.op, "count"_a = same.count,
                         "devices"_a = same.devices, "flops"_a = static_cast<int64_t>(same.flops),
                         "operand"_a = same.cut ? str(same.operand) : "", "spec"_a = spec));
  }
  return rows;
}

// None where the plan has no stages.
py::object pipeline(const Graph& graph) {
  const auto found = summarise_pipeline(graph, bridge::engine().options().topology);
  if (!found) return py::none();
  py::list stages, sends, actions;
  for (const StageSummary& stage : found->stages)
    stages.append(py::dict("parameter_bytes"_a = stage.parameter_bytes, "forward_ns"_a = stage.forward_ns,
                           "backward_ns"_a = stage.backward_ns, "in_flight"_a = stage.in_flight));
  for (const StageSend& send : found->sends)
    sends.append(py::dict("sender"_a = send.from, "receiver"_a = send.to, "bytes"_a = send.bytes,
                          "count"_a = send.count, "source"_a = bridge::source_text(send.source)));
  for (const TimedAction& timed : found->simulation.actions)
    actions.append(py::make_tuple(timed.rank, str(timed.action), timed.start, timed.end));
  return py::dict("schedule"_a = found->schedule, "microbatches"_a = found->microbatches, "stages"_a = stages,
                  "sends"_a = sends, "actions"_a = actions, "bubble"_a = found->simulation.bubble,
                  "step_ns"_a = found->simulation.total);
}

py::dict report(const PlanRef& handed) {
  const Plan& plan = *handed;
  const Graph& graph = plan.executable->graph();
  py::list collectives, values, fallbacks;
  for (const Input& input : graph.inputs) {
    const std::string label = input.name.empty() ? "input" : "input \"" + input.name + "\"";
    values.append(value_row(graph, input.value, nullptr, label, input.source));
  }
  for (const Node& node : graph.nodes) {
    if (moves_bytes(node)) collectives.append(collective_row(graph, node));
    if (is_collective(node)) continue;
    for (size_t i = 0; i < node.call->outputs.size(); ++i) {
      values.append(value_row(graph, node.output + static_cast<ValueId>(i), &node, node.call->op, node.source));
    }
  }
  for (const Fallback& fallback : plan.fallbacks)
    fallbacks.append(
        py::dict("op"_a = fallback.op, "bytes"_a = fallback.bytes, "source"_a = bridge::source_text(fallback.source)));
  py::list gathered;
  for (const GatheredCopy& copy : gathered_copies(graph))
    gathered.append(py::dict("bytes"_a = copy.bytes, "forward"_a = copy.forward, "backward"_a = copy.backward));
  const Flops flops = count_flops(graph);
  const MemoryUseOfRun use = predict_memory(graph, plan.executable->peak());
  return py::dict("mesh"_a = graph.mesh ? py::cast(graph.mesh->str()) : py::none(), "collectives"_a = collectives,
                  "values"_a = values, "fallbacks"_a = fallbacks, "gathered"_a = gathered,
                  "peak_bytes"_a = plan.executable->peak().bytes, "timeline"_a = timeline(plan, use),
                  "step_ns"_a = step_ns(graph, bridge::engine().options().topology),
                  "memory"_a = memory_report(plan, use), "balance"_a = balance(graph), "load"_a = load(graph),
                  "segments"_a = segments_report(plan), "flops"_a = flops.device, "whole_flops"_a = flops.whole,
                  "pipeline"_a = pipeline(graph), "placement"_a = placement_row(plan),
                  "plan"_a = PlanHandle{handed, bridge::engine().options().topology});
}

py::object report_or_none(const PlanRef& plan) { return plan ? py::object(report(plan)) : py::none(); }

PlanRef pending(const at::Tensor& tensor) {
  py::gil_scoped_release no_gil;
  return bridge::plan_pending(tensor).plan;
}

}  // namespace

void bind_debug(py::module_& m) {
  m.def("needs_contiguous", &bridge::needs_contiguous, py::arg("op"));
  m.def("report_last", [] {
    if (check_modes().memory) {  // what is measured is there when the step is over
      py::gil_scoped_release no_gil;
      bridge::engine().wait();
    }
    return report_or_none(bridge::engine().last_plan());
  });
  m.def("report_pending", [](const at::Tensor& tensor) {
    require_lazy(tensor, "explain");
    return report_or_none(pending(tensor));
  });
  m.def("dump_last", [] {
    const PlanRef plan = bridge::engine().last_plan();
    return plan ? print(plan->executable->graph(), bridge::source_text) : std::string();
  });
}

}  // namespace spmdx
