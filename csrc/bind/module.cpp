// SPDX-License-Identifier: Apache-2.0
// Entry point of the Python module spmdx._C.
#include "bind/bind.h"

#include "base/error.h"

namespace py = pybind11;

PYBIND11_MODULE(_C, module) {
  py::register_exception<spmdx::ShardingError>(module, "ShardingError", PyExc_ValueError);
  py::register_exception<spmdx::CommError>(module, "CommError", PyExc_RuntimeError);
  py::register_exception<spmdx::InternalError>(module, "InternalError", PyExc_RuntimeError);
  spmdx::bind_device(module);
  spmdx::bind_sharding(module);
  spmdx::bind_step(module);
  spmdx::bind_debug(module);
}
