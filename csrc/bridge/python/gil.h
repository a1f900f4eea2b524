// SPDX-License-Identifier: Apache-2.0
// The lock of Python's interpreter, given up or taken for as long as something lives.
#pragma once
#include <Python.h>

namespace spmdx::bridge {

// Gives up the GIL, if this thread has it, for as long as it lives.
class NoGil {
 public:
  NoGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~NoGil() {
    if (state_) PyEval_RestoreThread(state_);
  }
  NoGil(const NoGil&) = delete;

 private:
  PyThreadState* state_;
};

// Takes the GIL.
struct WithGil {
  WithGil() : state(PyGILState_Ensure()) {}
  ~WithGil() { PyGILState_Release(state); }
  PyGILState_STATE state;
};

}  // namespace spmdx::bridge
