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

// What a kernel gives: a tensor of a type, or, by its index, an input that it writes over.
struct KernelOutput {
  TensorType type;
  int64_t over = -1;  // none
};

// Both take the tensors of a segment's inputs, then its parameters as scalar tensors of float64, and give as many
// tensors as there are outputs that are over no input, or throw. Any number of threads may run them. Where `donated` is
// negative, or an input has another owner, a copy of it is written over. If `checks`, it is called twice where
// `donated` is negative, with copies, to see what it writes over.
std::shared_ptr<Kernel> library_kernel(const std::string& path, std::vector<KernelOutput> outputs, bool checks);
// `call` is Python's; its reference is taken. With the GIL.
std::shared_ptr<Kernel> python_kernel(PyObject* call, std::vector<KernelOutput> outputs, bool checks);

}  // namespace spmdx::bridge
