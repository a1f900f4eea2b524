// SPDX-License-Identifier: Apache-2.0
// Finds the Python class of an error by name when it is raised, and puts the user's line before messages.
#include "bridge/python/errors.h"

#include <Python.h>

#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include <new>

#include "base/error.h"
#include "bridge/python/gil.h"
#include "bridge/python/source.h"

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

namespace {

template <class Error>
std::exception_ptr torch_error(const std::string& lead, const c10::Error& error) {
  return std::make_exception_ptr(Error({__func__, __FILE__, __LINE__}, lead + error.what_without_backtrace()));
}

}  // namespace

void let_interrupts_pass() {
  try {
    throw;
  } catch (const python_error& error) {
    const WithGil gil;
    if (!PyErr_GivenExceptionMatches(error.type, PyExc_Exception)) throw;
  } catch (const pybind11::error_already_set& error) {
    const WithGil gil;
    if (!error.matches(PyExc_Exception)) throw;
  } catch (...) {
    return;  // C++ has none
  }
}

// The class of the exception stays, so that `except IndexError` works as in eager.
std::exception_ptr lead_error(std::exception_ptr error, SourceId source, const std::string& op) {
  const std::string where = source_text(source);
  const std::string lead = (where.empty() ? "" : where + ": ") + op + ": ";
  try {
    std::rethrow_exception(error);
  } catch (const c10::IndexError& e) {
    return torch_error<c10::IndexError>(lead, e);
  } catch (const c10::ValueError& e) {
    return torch_error<c10::ValueError>(lead, e);
  } catch (const c10::TypeError& e) {
    return torch_error<c10::TypeError>(lead, e);
  } catch (const c10::NotImplementedError& e) {
    return torch_error<c10::NotImplementedError>(lead, e);
  } catch (const c10::OutOfMemoryError& e) {
    return torch_error<c10::OutOfMemoryError>(lead, e);
  } catch (const c10::LinAlgError& e) {
    return torch_error<c10::LinAlgError>(lead, e);
  } catch (const c10::Error& e) {
    return torch_error<c10::Error>(lead, e);
  } catch (const InternalError& e) {
    return std::make_exception_ptr(InternalError(lead + e.what()));
  } catch (const ShardingError& e) {
    if (!where.empty() && std::string_view(e.what()).starts_with(where + ": ")) return error;  // has the line already
    return std::make_exception_ptr(ShardingError(lead + e.what()));
  } catch (const CommError& e) {
    return std::make_exception_ptr(CommError(lead + e.what()));
  } catch (const std::runtime_error& e) {
    return std::make_exception_ptr(std::runtime_error(lead + e.what()));
  } catch (const std::logic_error& e) {
    return std::make_exception_ptr(std::runtime_error(lead + e.what()));
  } catch (const std::bad_alloc&) {
    return std::make_exception_ptr(std::runtime_error(lead + "out of memory"));
  } catch (...) {
    return error;
  }
}

}  // namespace spmdx::bridge
