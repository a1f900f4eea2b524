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
#include "bridge/compilers/contract.h"
#include "bridge/python/gil.h"

namespace spmdx::bridge {
namespace {

namespace py = pybind11;
using Tensors = std::vector<at::Tensor>;

// What results have to be. Compilers may have laid them as they like.
class CompiledKernel : public Kernel {
 public:
  CompiledKernel(std::vector<KernelOutput> outputs, bool checks) : outputs_(std::move(outputs)), checks_(checks) {
    for (const KernelOutput& output : outputs_) {
      fresh_ += output.over < 0;
      if (output.over < 0) continue;
      const auto input = static_cast<size_t>(output.over);
      if (is_written_.size() <= input) is_written_.resize(input + 1, false);
      is_written_[input] = true;
    }
  }

  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           int donated) override {
    KernelGuard guard;
    const bool is_first = donated < 0;
    Tensors operands = operands_of(inputs, params, is_first);
    Tensors results = results_of(operands);
    if (is_first && checks_) {
      require_only_reads(inputs, operands);
      require_own_memory(results, operands);
      require_fresh(results, results_of(operands_of(inputs, params, is_first)));
    }
    auto next = results.begin();
    for (size_t i = 0; i < outputs_.size(); ++i)
      outputs[i] =
          buffer_of(std::move(outputs_[i].over < 0 ? *next++ : operands[static_cast<size_t>(outputs_[i].over)]));
  }

 private:
  virtual Tensors call(const Tensors& operands) = 0;

  bool is_written(size_t input) const { return input < is_written_.size() && is_written_[input]; }

  // Copies, in the first run.
  Tensors operands_of(std::span<const BufferRef> inputs, std::span<const Param> params, bool is_first) const {
    Tensors operands;
    for (size_t i = 0; i < inputs.size(); ++i) {
      at::Tensor operand = is_written(i) ? to_write_over(inputs[i], !is_first) : as_declared(tensor_of(inputs[i]));
      const bool copies = is_first && checks_ && !is_written(i);
      operands.push_back(copies ? operand.clone() : std::move(operand));
    }
    for (const Param& param : params) operands.push_back(at::scalar_tensor(param.real, at::kDouble));
    return operands;
  }

  // What it gives, whose types are looked at.
  Tensors results_of(const Tensors& operands) {
    Tensors results = call(operands);
    if (std::ssize(results) != fresh_)
      throw std::runtime_error("it gave " + std::to_string(results.size()) + " results. Expected " +
                               std::to_string(fresh_) + ".");
    auto next = results.begin();
    for (const KernelOutput& output : outputs_)
      require(output.over < 0 ? *next++ : operands[static_cast<size_t>(output.over)], output.type);
    return results;
  }

  void require_only_reads(std::span<const BufferRef> inputs, const Tensors& operands) const {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!is_written(i)) require_only_read({operands[i], as_declared(tensor_of(inputs[i]))}, i);
  }

  static at::Tensor plain(const at::Tensor& tensor) { return tensor.resolve_conj().resolve_neg().contiguous(); }

  // The tensor, if nobody else has it, or has a part of its memory.
  static at::Tensor to_write_over(const BufferRef& input, bool donated) {
    const at::Tensor& tensor = tensor_of(input);
    const bool is_ours = donated && input.use_count() == 1 && owns_memory_alone(tensor);
    return is_ours ? plain(tensor) : tensor.clone(at::MemoryFormat::Contiguous);
  }

  // Libraries read memory as it was laid when they were compiled, and check nothing. What stands for a number of Python
  // is a tensor like others there: the compiler was told.
  static at::Tensor as_declared(const at::Tensor& tensor) {
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor.clone();
    return plain(tensor);
  }

  static void require(const at::Tensor& tensor, const TensorType& expected) {
    if (tensor.defined() && tensor.layout() == at::kStrided && tensor.sizes() == c10::IntArrayRef(expected.shape) &&
        tensor.scalar_type() == to_scalar_type(expected.dtype) && tensor.device() == shard_device())
      return;
    const std::string where =
        tensor.defined() && tensor.device() != shard_device() ? " on " + tensor.device().str() : "";
    throw std::runtime_error("it gave " + told(tensor) + where + ". Expected " + str(expected) +
                             (where.empty() ? "." : " on " + shard_device().str() + "."));
  }

  std::vector<KernelOutput> outputs_;
  const bool checks_;
  int64_t fresh_ = 0;             // outputs that are over no input
  std::vector<bool> is_written_;  // by input; those beyond are not
};

class LibraryKernel final : public CompiledKernel {
 public:
  LibraryKernel(const std::string& path, std::vector<KernelOutput> outputs, bool checks)
      : CompiledKernel(std::move(outputs), checks), runner_(path, 1) {}

 private:
  Tensors call(const Tensors& operands) override {
    for (const at::Tensor& operand : operands)  // which it would read as if it lay there
      if (!operand.is_cpu()) throw std::runtime_error("it is for the CPU, and was given a tensor elsewhere");
    return runner_.run(operands);
  }
  torch::inductor::AOTIModelContainerRunnerCpu runner_;
};

class PythonKernel final : public CompiledKernel {
 public:
  PythonKernel(PyObject* call, std::vector<KernelOutput> outputs, bool checks)
      : CompiledKernel(std::move(outputs), checks), call_(py::reinterpret_borrow<py::object>(call).release()) {}
  ~PythonKernel() override {
    if (!Py_IsInitialized()) return;
    const WithGil gil;
    call_.dec_ref();
  }
  PythonKernel(const PythonKernel&) = delete;

 private:
  Tensors call(const Tensors& operands) override {
    const WithGil gil;
    try {
      return py::cast<Tensors>(call_(py::cast(operands)));
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

std::shared_ptr<Kernel> library_kernel(const std::string& path, std::vector<KernelOutput> outputs, bool checks) {
  return std::make_shared<LibraryKernel>(path, std::move(outputs), checks);
}

std::shared_ptr<Kernel> python_kernel(PyObject* call, std::vector<KernelOutput> outputs, bool checks) {
  return std::make_shared<PythonKernel>(call, std::move(outputs), checks);
}

}  // namespace spmdx::bridge
