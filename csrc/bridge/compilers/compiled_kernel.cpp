// SPDX-License-Identifier: Apache-2.0
// Kernels of compiled segments: tensors in, tensors out, whose types are looked at.
#include "bridge/compilers/compiled_kernel.h"

#include <ATen/Functions.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>
#include <torch/csrc/utils/pybind.h>

#include <stdexcept>
#include <utility>

#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/shard_device.h"
#include "bridge/python/gil.h"

namespace spmdx::bridge {
namespace {

namespace py = pybind11;
using Tensors = std::vector<at::Tensor>;

// What results have to be. Compilers may have laid them as they like.
class CompiledKernel : public Kernel {
 public:
  explicit CompiledKernel(std::vector<TensorType> outputs) : outputs_(std::move(outputs)) {}

  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           int /*donated*/) override {
    KernelGuard guard;
    Tensors operands;
    for (const BufferRef& input : inputs) operands.push_back(as_declared(tensor_of(input)));
    for (const Param& param : params) operands.push_back(at::scalar_tensor(param.real, at::kDouble));
    Tensors results = call(std::move(operands));
    if (results.size() != outputs_.size())
      throw std::runtime_error("it gave " + std::to_string(results.size()) + " results. Expected " +
                               std::to_string(outputs_.size()) + ".");
    for (size_t i = 0; i < results.size(); ++i) {
      require(results[i], outputs_[i]);
      outputs[i] = buffer_of(std::move(results[i]));
    }
  }

 private:
  virtual Tensors call(Tensors operands) = 0;

  // Libraries read memory as it was laid when they were compiled, and check nothing. What stands for a number of Python
  // is a tensor like others there: the compiler was told.
  static at::Tensor as_declared(const at::Tensor& tensor) {
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor.clone();
    return tensor.resolve_conj().resolve_neg().contiguous();
  }

  static void require(const at::Tensor& tensor, const TensorType& expected) {
    if (tensor.defined() && tensor.sizes() == c10::IntArrayRef(expected.shape) &&
        tensor.scalar_type() == to_scalar_type(expected.dtype) && tensor.device() == shard_device())
      return;
    const std::string found =
        tensor.defined() ? std::string(c10::toString(tensor.scalar_type())) + str(tensor.sizes().vec()) : "nothing";
    throw std::runtime_error("it gave " + found + ". Expected " + str(expected) + ".");
  }

  std::vector<TensorType> outputs_;
};

class LibraryKernel final : public CompiledKernel {
 public:
  LibraryKernel(const std::string& path, std::vector<TensorType> outputs)
      : CompiledKernel(std::move(outputs)), runner_(path, 1) {}

 private:
  Tensors call(Tensors operands) override {
    for (const at::Tensor& operand : operands)  // which it would read as if it lay there
      if (!operand.is_cpu()) throw std::runtime_error("it is for the CPU, and was given a tensor elsewhere");
    return runner_.run(operands);
  }
  torch::inductor::AOTIModelContainerRunnerCpu runner_;
};

class PythonKernel final : public CompiledKernel {
 public:
  PythonKernel(PyObject* call, std::vector<TensorType> outputs)
      : CompiledKernel(std::move(outputs)), call_(py::reinterpret_borrow<py::object>(call).release()) {}
  ~PythonKernel() override {
    if (!Py_IsInitialized()) return;
    const WithGil gil;
    call_.dec_ref();
  }
  PythonKernel(const PythonKernel&) = delete;

 private:
  Tensors call(Tensors operands) override {
    const WithGil gil;
    try {
      return py::cast<Tensors>(call_(py::cast(std::move(operands))));
    } catch (const py::error_already_set& error) {
      const auto kind = error.type().attr("__name__").cast<std::string>();  // the text: the GIL frees the rest
      throw std::runtime_error(kind + ": " + py::str(error.value()).cast<std::string>());
    } catch (const py::cast_error&) {
      throw std::runtime_error("it gave something else. Expected a list of tensors.");
    }
  }
  py::handle call_;
};

}  // namespace

std::shared_ptr<Kernel> library_kernel(const std::string& path, std::vector<TensorType> outputs) {
  return std::make_shared<LibraryKernel>(path, std::move(outputs));
}

std::shared_ptr<Kernel> python_kernel(PyObject* call, std::vector<TensorType> outputs) {
  return std::make_shared<PythonKernel>(call, std::move(outputs));
}

}  // namespace spmdx::bridge
