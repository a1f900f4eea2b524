// SPDX-License-Identifier: Apache-2.0
// torch.autocast("spmdx"): PyTorch's own op lists, registered for the device.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

// PyTorch's macros use names of this namespace.
namespace at::autocast {

#define SPMDX_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define SPMDX_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define SPMDX_FP32_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define SPMDX_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

namespace {

// Refused as on every other device: its gradient overflows in 16 bits, and computing it in fp32 here would hide that.
Tensor unsafe_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. Use "
              "binary_cross_entropy_with_logits, or turn autocast off around them.");
}

}  // namespace

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(SPMDX_LOWER)
  AT_FORALL_FP32(SPMDX_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(SPMDX_FP32_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(SPMDX_PROMOTE)
  // The lists leave it out, and then its log_softmax rounds to 16 bits. PyTorch says fp32, and so does its CPU.
  SPMDX_FP32(cross_entropy_loss)
  m.impl("binary_cross_entropy", unsafe_binary_cross_entropy);
}

}  // namespace at::autocast
