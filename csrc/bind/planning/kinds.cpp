// SPDX-License-Identifier: Apache-2.0
// Kinds of devices from Python, and where a step runs over them.
#include <pybind11/stl.h>

#include "base/error.h"
#include "bind/bind.h"
#include "bind/handles.h"
#include "bind/planning/hardware.h"
#include "bind/planning/kinds.h"
#include "bridge/python/source.h"
#include "bridge/recorder/engine.h"
#include "passes/report/placement.h"

namespace spmdx {
namespace {

namespace py = pybind11;
using namespace bind;
using namespace py::literals;

void set_kinds(const std::vector<py::dict>& rows, std::vector<uint32_t> of_device, std::string axis) {
  DeviceKinds kinds{{}, std::move(of_device), std::move(axis)};
  for (const py::dict& row : rows)
    kinds.kinds.push_back({row["name"].cast<std::string>(), hardware_from(row["hardware"].cast<py::dict>()),
                           row["own_memory"].cast<bool>(), row["ops"].cast<std::set<std::string>>(),
                           dtypes_named(row["dtypes"].cast<std::vector<std::string>>())});
  const py::gil_scoped_release no_gil;
  CompileOptions options = bridge::engine().options();
  options.kinds = std::move(kinds);
  bridge::engine().set_options(std::move(options));
}

}  // namespace

py::object placement_row(const Plan& plan) {
  if (!plan.placed) return py::none();
  PlacedSummary all;
  {
    const py::gil_scoped_release no_gil;
    all = summarise_placement(*plan.placed);
  }
  py::list segments, sends;
  for (const PlacedSegment& each : all.segments)
    segments.append(py::dict("device"_a = each.device, "start_ns"_a = each.start_ns, "end_ns"_a = each.end_ns,
                             "ops"_a = each.ops, "op"_a = each.op, "source"_a = bridge::source_text(each.source)));
  for (const PlacedSend& each : all.sends)
    sends.append(py::dict("sender"_a = each.from, "receiver"_a = each.to, "bytes"_a = each.bytes, "op"_a = each.op,
                          "source"_a = bridge::source_text(each.source)));
  return py::dict("kinds"_a = all.kinds, "segments"_a = segments, "sends"_a = sends, "ns"_a = all.ns,
                  "least_ns"_a = all.least_ns, "alone_ns"_a = all.alone_ns);
}

void bind_kinds(py::module_& m) {
  m.def("set_device_kinds", &set_kinds, py::arg("kinds"), py::arg("of_device"), py::arg("axis"));
}

}  // namespace spmdx
