// SPDX-License-Identifier: Apache-2.0
// Which operators run on the simulated CUDA device: all that the CPU has, except those that say they are for CPUs.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "simulated.h"

namespace simulated {
namespace {

void any_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string& name = op.schema().name();
  const bool missing =
      name.find("_for_cpu") != std::string::npos || name.find("_scaled_dot_product_") != std::string::npos;
  TORCH_CHECK_NOT_IMPLEMENTED(!missing, name, " is not implemented for CUDA");
  at::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  torch::jit::Stack results = call(op, *stack);
  std::move(results.begin(), results.end(), std::back_inserter(*stack));
}

void no_library(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  stack->emplace_back(false);
}

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&any_operator>()); }

// Composites of CUDA or of nobody, where the CPU has a kernel of its own or chooses another one by the device.
TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  for (const char* name :
       {"_stack", "_stack.out", "addr", "addr.out", "all.dims", "all.dims_out", "any.dims", "any.dims_out",
        "conj_physical_", "convolution", "convolution_backward", "linalg__powsum", "mish_backward",
        "native_channel_shuffle", "native_group_norm", "native_layer_norm", "silu_backward"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&any_operator>());
  for (const char* name :
       {"_use_cudnn_ctc_loss", "_use_cudnn_ctc_loss.Tensor", "_use_miopen_ctc_loss", "_use_miopen_ctc_loss.Tensor"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&no_library>());
}

}  // namespace
}  // namespace simulated
