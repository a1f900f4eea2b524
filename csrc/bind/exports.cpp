// SPDX-License-Identifier: Apache-2.0
// Exports from Python: the program of a step, to be written in primitive ops, and its StableHLO.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "bind/bind.h"
#include "bind/handles.h"
#include "bind/segment_row.h"
#include "bridge/export/traced.h"
#include "bridge/python/source.h"
#include "bridge/step/assembled.h"

namespace spmdx {
namespace {

namespace py = pybind11;
using namespace bind;
using bridge::Traced;

Traced traced(const std::optional<std::vector<at::Tensor>>& tensors) {
  if (!tensors) return bridge::traced_step();
  for (const at::Tensor& tensor : *tensors) require_lazy(tensor, "export");
  return bridge::traced_values(*tensors);
}

// As a segment, whose numbers are constants, with the user's lines of its nodes, the scalars that are numbers of Python
// by places among the inputs, and how many outputs were asked for.
py::dict row(const Traced& traced) {
  py::dict found = segment_row(traced.graph);
  std::vector<std::string> lines;
  for (const Node& node : traced.graph.nodes) lines.push_back(bridge::source_text(node.source));
  found["lines"] = lines;
  found["numbers"] = bridge::numbers_in(traced);
  found["results"] = traced.results;
  return found;
}

// What the inputs hold, on the CPU.
std::vector<at::Tensor> inputs(const Traced& traced) {
  const py::gil_scoped_release no_gil;
  std::vector<at::Tensor> found;
  for (const DataRef& data : traced.data_of_inputs) found.push_back(bridge::assembled(*data, data->wait()).clone());
  return found;
}

}  // namespace

void bind_exports(py::module_& m) {
  py::class_<Traced>(m, "Traced")
      .def("row", &row)
      .def("inputs", &inputs)
      .def("stablehlo", &bridge::stablehlo_of, py::arg("text"), py::arg("sharded"),
           py::call_guard<py::gil_scoped_release>());
  m.def("traced", &traced, py::arg("tensors"));
}

}  // namespace spmdx
