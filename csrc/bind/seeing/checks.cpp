// SPDX-License-Identifier: Apache-2.0
// Checks from Python: check modes of a run, the most memory that it held, and rules that a test overrides.
#include "runtime/data/check.h"

#include <pybind11/stl.h>
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

// By device of the mesh: the most that it held, and the largest pieces of that.
std::vector<std::pair<int64_t, std::vector<int64_t>>> measured_peaks() {
  wait_for_steps();
  std::vector<std::pair<int64_t, std::vector<int64_t>>> peaks;
  if (const PlanRef plan = bridge::engine().last_plan())
    for (const MeasuredPeak& peak : plan->executable->measured_peaks()) peaks.emplace_back(peak.bytes, peak.largest);
  return peaks;
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
