// SPDX-License-Identifier: Apache-2.0
// Gives warnings; takes the GIL for it.
#include "bridge/python/warnings.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

namespace spmdx::bridge {

void warn(const std::string& message) {
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_WarnEx(PyExc_UserWarning, message.c_str(), 1) != 0) throw python_error();
}

}  // namespace spmdx::bridge
