// SPDX-License-Identifier: Apache-2.0
// HostKernel: copies operands to the CPU and results back.
#include "bridge/backend/host_kernel.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/own_kernels.h"
#include "bridge/backend/shard_device.h"

namespace spmdx::bridge {
namespace {

class HostKernel final : public Kernel {
 public:
  explicit HostKernel(std::unique_ptr<Kernel> inner) : inner_(std::move(inner)) {}

  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           int) override {
    std::vector<BufferRef> operands, results(outputs.size());
    for (const BufferRef& input : inputs) operands.push_back(input ? buffer_of(to_host(tensor_of(input))) : nullptr);
    {
      HostGuard host;
      inner_->run(operands, params, results, -1);
    }
    for (size_t i = 0; i < results.size(); ++i)
      if (results[i]) outputs[i] = lent(tensor_of(results[i]));
  }

 private:
  std::unique_ptr<Kernel> inner_;
};

class AcceleratorKernel final : public Kernel {
 public:
  AcceleratorKernel(const Call& call, std::unique_ptr<Kernel> (*prepare)(const Call& call))
      : call_(call), prepare_(prepare), kernel_(prepare(call)) {
    has_empty_operand_ = std::any_of(call.inputs.begin(), call.inputs.end(),
                                     [](const TensorType& type) { return numel(type.shape) == 0; });
  }

  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           int donated) override {
    try {
      return kernel_->run(inputs, params, outputs, donated);
    } catch (const c10::NotImplementedError&) {
      if (on_host_) throw;
    } catch (const c10::Error&) {
      if (on_host_ || !has_empty_operand_) throw;
    }
    kernel_ = prepare_on_host(call_, prepare_);
    on_host_ = true;
    kernel_->run(inputs, params, outputs, -1);
  }

 private:
  Call call_;
  std::unique_ptr<Kernel> (*prepare_)(const Call& call);
  std::unique_ptr<Kernel> kernel_;
  bool has_empty_operand_ = false, on_host_ = false;
};

// Whether ATen's kernel draws random numbers. They come from a generator of the CPU (AtenKernel).
bool draws(const Call& call) {
  return std::any_of(call.args.begin(), call.args.end(), [](const Arg& arg) {
    const auto* opaque = std::get_if<OpaqueArg>(&arg);
    return opaque && opaque->text == "generator";
  });
}

bool lacks_kernel(const Call& call) {
  if (call.op.starts_with("spmdx.")) return false;
  if (stands_in(call.op)) return false;
  const auto op = c10::Dispatcher::singleton().findSchema(operator_name(call.op));
  const auto key = c10::computeDispatchKey(std::nullopt, std::nullopt, shard_device());
  return op && !op->hasComputedKernelForDispatchKey(key);
}

}  // namespace

bool runs_on_host(const Call& call) { return draws(call) || lacks_kernel(call); }

std::unique_ptr<Kernel> prepare_on_accelerator(const Call& call, std::unique_ptr<Kernel> (*prepare)(const Call& call)) {
  return std::make_unique<AcceleratorKernel>(call, prepare);
}

std::unique_ptr<Kernel> prepare_on_host(const Call& call, std::unique_ptr<Kernel> (*prepare)(const Call& call)) {
  HostGuard host;
  return std::make_unique<HostKernel>(prepare(call));
}

}  // namespace spmdx::bridge
