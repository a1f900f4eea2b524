// SPDX-License-Identifier: Apache-2.0
// Batch norm of no elements on accelerators, whose kernels fail on it: a device that holds no rows in evaluation, or no
// channels. ATen's kernels run all other calls.
#include <ATen/Functions.h>

#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/own_kernels.h"
#include "bridge/backend/shard_device.h"

namespace spmdx::bridge {
namespace {

// (x, weight, bias, running_mean, running_var, …) -> (out, mean, invstd, new running_mean, new running_var)
std::unique_ptr<Kernel> prepare_batch_norm(const Call& call) {
  const uint32_t x = own_argument<TensorArg>(call, 0).input;
  if (shard_device().is_cpu() || numel(call.inputs.at(x).shape) != 0) return nullptr;
  const uint32_t mean = own_argument<TensorArg>(call, 3).input, var = own_argument<TensorArg>(call, 4).input;
  const auto zeros = [](const TensorType& type) {
    return type.dtype == DType::unknown ? at::Tensor()
                                        : at::zeros(type.shape, on_shard_device(to_scalar_type(type.dtype)));
  };
  return kernel_of(call,
                   [=, outputs = call.outputs](std::span<const BufferRef> inputs,
                                               std::span<const Param>) -> std::vector<at::Tensor> {
                     return {at::empty_like(tensor_of(inputs[x])), zeros(outputs[1]), zeros(outputs[2]),
                             tensor_of(inputs[mean]).clone(), tensor_of(inputs[var]).clone()};
                   });
}

const OwnKernels batch_norm_kernels = {{"aten._native_batch_norm_legit_functional", prepare_batch_norm}};

}  // namespace
}  // namespace spmdx::bridge
