// SPDX-License-Identifier: Apache-2.0
// Kernels of compiled segments: a library that AOTInductor made, or a function of Python.
#pragma once
#include <Python.h>

#include <memory>
#include <string>
#include <vector>

#include "base/types.h"
#include "runtime/data/backend.h"

namespace spmdx::bridge {

// Both take the tensors of a segment's inputs, then its parameters as scalar tensors of float64, and give as many
// tensors as `outputs`, or throw. Any number of threads may run them.
std::shared_ptr<Kernel> library_kernel(const std::string& path, std::vector<TensorType> outputs);
// `call` is Python's; its reference is taken. With the GIL.
std::shared_ptr<Kernel> python_kernel(PyObject* call, std::vector<TensorType> outputs);

}  // namespace spmdx::bridge
