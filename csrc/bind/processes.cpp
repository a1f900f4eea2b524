// SPDX-License-Identifier: Apache-2.0
// Processes from Python: joining a program of several processes, leaving it, and recovering it.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "bind/bind.h"
#include "bridge/python/source.h"
#include "bridge/recorder/engine.h"
#include "bridge/step/flush.h"
#include "bridge/world/c10d_comm.h"
#include "bridge/world/patient_store.h"

namespace spmdx {
namespace {

namespace py = pybind11;

// (name, pid, start time) of every process; the pid is 0 for a process on another machine.
using PeerRows = std::vector<std::tuple<std::string, int64_t, uint64_t>>;

void join(int64_t here, int64_t devices, const PeerRows& rows, c10::intrusive_ptr<c10d::Store> store, double timeout_s,
          bool on_stream, bridge::MakeGroup make_group) {
  bridge::World world;
  world.processes = {static_cast<int64_t>(rows.size()), here, devices};
  for (const auto& [name, pid, started] : rows) world.peers.push_back({name, pid, started});
  world.store = std::move(store);
  world.timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
  world.on_stream = on_stream;
  bridge::join(std::move(world), std::move(make_group));
}

std::vector<std::string> await_values(const std::vector<std::string>& keys, const std::string& what,
                                      const std::string& stale, double patience_s) {
  const auto patience = std::chrono::milliseconds(static_cast<int64_t>(patience_s * 1000));
  const bridge::Awaited awaited{what, bridge::current_source(), stale, patience};
  py::gil_scoped_release no_gil;
  return bridge::await_values(keys, awaited);
}

// Returns the message of an error of a step that the program has not seen yet; empty if there is none.
std::string recover(const std::string& why) {
  py::gil_scoped_release no_gil;
  bridge::call_off(why);
  bridge::engine().wait();
  std::string unseen;
  try {
    if (const std::exception_ptr error = bridge::undo_failed()) std::rethrow_exception(error);
  } catch (const std::exception& error) {
    unseen = error.what();
  }
  bridge::recover(bridge::engine());
  return unseen;
}

}  // namespace

void bind_processes(py::module_& m) {
  m.def("patient", bridge::patient, py::arg("store"));
  m.def("join", join, py::arg("here"), py::arg("devices"), py::arg("peers"), py::arg("store"), py::arg("timeout"),
        py::arg("on_stream"), py::arg("make_group"), py::call_guard<py::gil_scoped_release>());
  m.def(
      "leave", [](const std::string& why) { bridge::leave(bridge::engine().standing().done, why); }, py::arg("why"),
      py::call_guard<py::gil_scoped_release>());
  m.def("recover", recover, py::arg("why"));
  m.def("generation", bridge::generation);
  m.def("end_world", bridge::end_world, py::arg("why"), py::call_guard<py::gil_scoped_release>());
  m.def("idle", [] { return bridge::engine().idle(); });
  m.def("await_values", await_values, py::arg("keys"), py::arg("what"), py::arg("stale") = "",
        py::arg("patience") = 0.0);
  m.def("lives", bridge::lives, py::arg("process"));
  m.def("runs", bridge::runs, py::arg("process"));
  m.def("broken", bridge::broken);
  m.def("set_before_first_use", bridge::set_before_first_use, py::arg("callback"));
  m.def("note_use", bridge::note_use);
}

}  // namespace spmdx
