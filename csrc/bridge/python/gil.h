// SPDX-License-Identifier: Apache-2.0
// Guards that give up or take the lock of Python's interpreter (GIL).
#pragma once
#include <Python.h>

namespace spmdx::bridge {

// Gives up the GIL, if this thread has it, while the object lives.
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

// Takes the GIL while the object lives.
struct WithGil {
  WithGil() : state(PyGILState_Ensure()) {}
  ~WithGil() { PyGILState_Release(state); }
  PyGILState_STATE state;
};

}  // namespace spmdx::bridge
