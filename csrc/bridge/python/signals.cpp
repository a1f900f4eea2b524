// SPDX-License-Identifier: Apache-2.0
// Signals: lets Python handle signals that come while one of its threads waits in our code.
#include "bridge/python/signals.h"

#include <pybind11/pybind11.h>

#include "base/waiting.h"

namespace spmdx::bridge {
namespace {

// Python runs its handlers in the main thread only; in others this does nothing. Threads that Python does not know are
// our own.
void handle_signals() {
  if (!Py_IsInitialized() || !PyGILState_GetThisThreadState()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  std::exception_ptr raised;
  if (PyErr_CheckSignals() != 0) raised = std::make_exception_ptr(pybind11::error_already_set());
  PyGILState_Release(state);
  if (raised) std::rethrow_exception(raised);
}

}  // namespace

void heed_signals() { set_wait_check(handle_signals); }

}  // namespace spmdx::bridge
