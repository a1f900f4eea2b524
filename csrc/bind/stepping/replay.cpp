// SPDX-License-Identifier: Apache-2.0
// Calls that are captured and sent again.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bind/bind.h"
#include "bind/handles.h"
#include "bridge/replay/captured.h"

namespace spmdx {
namespace {

namespace py = pybind11;
using bridge::Captured;
using bridge::HostNumbers;

bool begin_capture(std::vector<at::Tensor> arguments, std::vector<at::Tensor> watched) {
  for (const auto* tensors : {&arguments, &watched})
    for (const at::Tensor& tensor : *tensors) bind::require_lazy(tensor, "compile");
  return bridge::begin_capture({std::move(arguments), std::move(watched)});
}

HostNumbers::Operand operand(const py::object& value) {
  if (py::isinstance<py::int_>(value)) return {value.cast<int64_t>(), 0};
  return {-1, value.cast<double>()};
}

// By the names of Python's operators.
HostNumbers::Op op_named(const std::string& name) {
  using Op = HostNumbers::Op;
  static const std::map<std::string, Op> ops = {{"abs", Op::absolute}, {"add", Op::add},       {"mul", Op::multiply},
                                                {"neg", Op::negate},   {"pow", Op::power},     {"sqrt", Op::root},
                                                {"sub", Op::subtract}, {"truediv", Op::divide}};
  return ops.at(name);
}

HostNumbers::Comparison comparison_named(const std::string& name) {
  using Comparison = HostNumbers::Comparison;
  static const std::map<std::string, Comparison> comparisons = {
      {"eq", Comparison::equal}, {"le", Comparison::less_equal}, {"lt", Comparison::less}};
  return comparisons.at(name);
}

int64_t add(HostNumbers& numbers, const std::string& op, const py::object& a, const py::object& b, double value) {
  return numbers.add(op_named(op), operand(a), operand(b), value);
}

void add_guard(HostNumbers& numbers, const std::string& comparison, const py::object& a, const py::object& b,
               bool holds) {
  numbers.add_guard(comparison_named(comparison), operand(a), operand(b), holds);
}

void add_use(HostNumbers& numbers, std::pair<uint32_t, ValueId> begin, std::pair<uint32_t, ValueId> end,
             std::vector<int64_t> results, bool gradients, bool in_order) {
  numbers.add_use({begin.first, end.first, begin.second, end.second, std::move(results), gradients, in_order});
}

void bind_numbers(py::module_& m) {
  py::class_<HostNumbers, std::shared_ptr<HostNumbers>>(m, "HostNumbers")
      .def(py::init<>())
      .def("add_tensor", &HostNumbers::add_tensor, py::arg("tensor"), py::arg("value"))
      .def("add_given", &HostNumbers::add_given, py::arg("which"), py::arg("value"))
      .def("add", add, py::arg("op"), py::arg("a"), py::arg("b"), py::arg("value"))
      .def("add_guard", add_guard, py::arg("comparison"), py::arg("a"), py::arg("b"), py::arg("holds"))
      .def("add_use", add_use, py::arg("begin"), py::arg("end"), py::arg("results"), py::arg("gradients"),
           py::arg("in_order"))
      .def("add_increment", &HostNumbers::add_increment, py::arg("tensor"), py::arg("by"))
      .def("note_written", &HostNumbers::note_written, py::arg("tensor"))
      .def("hold", &HostNumbers::hold, py::arg("before"))
      .def("can_repeat", &HostNumbers::can_repeat)
      .def("repeat", &HostNumbers::repeat, py::arg("given"))
      .def("save", &HostNumbers::save)
      .def("restore", &HostNumbers::restore)
      .def("count", [](const HostNumbers& self) { return self.values().size(); });
}

}  // namespace

void bind_replay(py::module_& m) {
  bind_numbers(m);
  py::class_<Captured, std::shared_ptr<Captured>>(m, "Captured")
      .def("set_numbers", &Captured::set_numbers, py::arg("numbers"))
      .def("differs", &Captured::differs, py::arg("other"))
      .def("bind_numbers", &Captured::bind_numbers, py::arg("before"))
      .def("misfit", &Captured::misfit, py::arg("arguments"))
      .def("send", &Captured::send, py::arg("arguments"));
  m.def("recorded_so_far", bridge::recorded_so_far);
  m.def("have_gradients", bridge::have_gradients, py::arg("tensors"));
  m.def("begin_capture", begin_capture, py::arg("arguments"), py::arg("watched"));
  m.def("abandon_capture", bridge::abandon_capture);
  m.def("end_capture", bridge::end_capture, py::arg("returned"));
}

}  // namespace spmdx
