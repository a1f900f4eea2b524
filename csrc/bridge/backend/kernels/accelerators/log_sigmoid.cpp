// SPDX-License-Identifier: Apache-2.0
// log_sigmoid on accelerators. Its second result, exp(-|x|), is made as on the CPU, where backward reads it: GPUs would
// return a tensor without elements, which no rule could cut.
#include <ATen/Functions.h>

#include "bridge/backend/buffer.h"
#include "bridge/backend/own_kernels.h"

namespace spmdx::bridge {
namespace {

Compute prepare_log_sigmoid(const Call&) {
  return [](std::span<const BufferRef> inputs, std::span<const Param>) -> std::vector<at::Tensor> {
    const at::Tensor& x = tensor_of(inputs[0]);
    return {at::log_sigmoid(x), x.abs().neg_().exp_()};
  };
}

const OwnKernels log_sigmoid_kernels({{"aten.log_sigmoid_forward", prepare_log_sigmoid}}, Runs::off_the_cpu);

}  // namespace
}  // namespace spmdx::bridge
