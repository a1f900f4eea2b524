// SPDX-License-Identifier: Apache-2.0
// Device traces from Python: what each device of a plan does, as plain dicts.
#include "bind/seeing/traces.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "bind/bind.h"
#include "bridge/python/source.h"
#include "passes/strategy/timeline.h"
#include "runtime/step/device_traces.h"

namespace spmdx {
namespace {

namespace py = pybind11;
using namespace bind;
using namespace py::literals;

struct Traces {
  PlanRef plan;
  DeviceTraces devices;
};

const char* name_of(DeviceNode::Kind kind) {
  static constexpr const char* kNames[] = {"compute", "collective", "send", "receive"};
  return kNames[static_cast<size_t>(kind)];
}

std::unique_ptr<Traces> traces_of(const PlanHandle& handle) {
  return std::make_unique<Traces>(Traces{handle.plan, DeviceTraces(handle.plan->executable->graph(), handle.topology)});
}

py::dict node_row(const Traces& traces, const DeviceNode& node) {
  const Node& of = traces.plan->executable->graph().nodes[node.node];
  return py::dict("kind"_a = name_of(node.kind), "name"_a = label(of), "node"_a = node.node, "ns"_a = node.ns,
                  "flops"_a = node.flops, "bytes"_a = node.bytes, "group"_a = node.group, "peer"_a = node.peer,
                  "reads"_a = node.reads, "after"_a = node.after, "source"_a = bridge::source_text(of.source));
}

py::list nodes(const Traces& traces, int64_t device) {
  std::vector<DeviceNode> found;
  {
    py::gil_scoped_release no_gil;
    found = traces.devices.of(device);
  }
  py::list rows;
  for (const DeviceNode& node : found) rows.append(node_row(traces, node));
  return rows;
}

// A copy of a report knows what the report says, and no plan.
py::tuple nothing(const PlanHandle&) { return py::make_tuple(py::type::of(py::none()), py::tuple()); }

}  // namespace

void bind_traces(py::module_& m) {
  py::class_<Traces>(m, "Traces")
      .def_property_readonly("devices", [](const Traces& traces) { return traces.devices.devices(); })
      .def_property_readonly("groups", [](const Traces& traces) { return traces.devices.groups(); })
      .def("nodes", &nodes, "device"_a);
  py::class_<PlanHandle>(m, "PlanHandle")
      .def("traces", &traces_of, py::call_guard<py::gil_scoped_release>())
      .def("__reduce__", &nothing);
}

}  // namespace spmdx
