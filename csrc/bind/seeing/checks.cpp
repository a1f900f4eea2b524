// SPDX-License-Identifier: Apache-2.0
// Checks from Python: check modes of a run, the most memory that it held, and rules that a test overrides.
#include "runtime/data/check.h"

#include <torch/csrc/utils/pybind.h>

#include "bind/bind.h"
#include "bridge/recorder/engine.h"
#include "rules/override.h"

namespace spmdx {
namespace {

namespace py = pybind11;

void wait_for_steps() {
  py::gil_scoped_release no_gil;
  bridge::engine().wait();
}

std::vector<int64_t> measured_peaks() {
  wait_for_steps();
  const PlanRef plan = bridge::engine().last_plan();
  return plan ? plan->executable->measured_peaks() : std::vector<int64_t>{};
}

}  // namespace

void bind_checks(py::module_& m) {
  m.def(
      "set_checks",
      [](bool poison, bool memory, bool replicas) {
        wait_for_steps();
        set_check_modes({poison, memory, replicas});
      },
      py::arg("poison") = false, py::arg("memory") = false, py::arg("replicas") = false);
  m.def("checks", [] {
    const CheckModes modes = check_modes();
    return py::dict(py::arg("poison") = modes.poison, py::arg("memory") = modes.memory,
                    py::arg("replicas") = modes.replicas);
  });
  m.def("measured_peaks", measured_peaks);
  m.def(
      "override_rule",
      [](const std::string& op, const std::string& changes) {
        override_rule(op, changes);
        bridge::engine().clear_cache();
      },
      py::arg("op"), py::arg("changes"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace spmdx
