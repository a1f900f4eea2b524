// SPDX-License-Identifier: Apache-2.0
// Exceptions of the core and of PyTorch, as Python's.
#include <ATen/core/operator_name.h>
#include <c10/util/Exception.h>

#include <exception>

#include "base/error.h"
#include "bind/bind.h"

namespace spmdx {
namespace {

namespace py = pybind11;

void raise_as(const char* type, const std::exception& error) {
  py::object cls = py::module_::import("spmdx.errors").attr(type);
  PyErr_SetString(cls.ptr(), error.what());
}

void translate(std::exception_ptr pointer) {
  try {
    std::rethrow_exception(pointer);
  } catch (const ShardingError& e) {
    raise_as("ShardingError", e);
  } catch (const CommError& e) {
    raise_as("CommError", e);
  } catch (const InternalError& e) {
    raise_as("InternalError", e);
  } catch (const c10::IndexError& e) {
    PyErr_SetString(PyExc_IndexError, e.what_without_backtrace());
  } catch (const c10::ValueError& e) {
    PyErr_SetString(PyExc_ValueError, e.what_without_backtrace());
  } catch (const c10::TypeError& e) {
    PyErr_SetString(PyExc_TypeError, e.what_without_backtrace());
  } catch (const c10::NotImplementedError& e) {
    PyErr_SetString(PyExc_NotImplementedError, e.what_without_backtrace());
  } catch (const c10::Error& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what_without_backtrace());
  }
}

}  // namespace

void bind_errors(py::module_& m) {
  // A local translator is tried before all others. The module has the classes of spmdx.errors under its own names, too.
  py::register_local_exception_translator(translate);
  py::object errors = py::module_::import("spmdx.errors");
  for (const char* type : {"ShardingError", "CommError", "InternalError"}) m.attr(type) = errors.attr(type);
}

}  // namespace spmdx
