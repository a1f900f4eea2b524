// SPDX-License-Identifier: Apache-2.0
// Python classes of spmdx's errors, found by name when one is raised.
#include "bridge/errors.h"

#include <Python.h>

#include <torch/csrc/Exceptions.h>

#include "base/error.h"

namespace spmdx::bridge {
namespace {

class PythonError final : public torch::PyTorchError {
 public:
  PythonError(const char* name, const char* fallback, const std::string& message)
      : PyTorchError(message), name_(name), fallback_(fallback) {}
  // Called with the GIL, when the exception reaches Python.
  PyObject* python_type() override {
    for (auto [module_name, name] : {std::pair{"spmdx.errors", name_}, std::pair{"builtins", fallback_}}) {
      PyObject* module = PyImport_ImportModule(module_name);
      PyObject* type = module ? PyObject_GetAttrString(module, name) : nullptr;
      Py_XDECREF(module);
      if (type) return type;
      PyErr_Clear();
    }
    return PyExc_RuntimeError;
  }

 private:
  const char* name_;
  const char* fallback_;
};

}  // namespace

void rethrow_for_python() {
  try {
    throw;
  } catch (const ShardingError& error) {
    throw PythonError("ShardingError", "ValueError", error.what());
  } catch (const CommError& error) {
    throw PythonError("CommError", "RuntimeError", error.what());
  } catch (const InternalError& error) {
    throw PythonError("InternalError", "RuntimeError", error.what());
  }
}

}  // namespace spmdx::bridge
