// SPDX-License-Identifier: Apache-2.0
// Scaled dot product attention: one node in forward and one in backward, where the CPU's flash kernel can compute it.
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {
namespace {

using at::Tensor;
using torch::jit::Stack;
using OptionalTensor = std::optional<Tensor>;

constexpr int64_t kMaths = 0, kOneNode = 4;  // at::SDPBackend

bool mask_fits(const OptionalTensor& mask, const Tensor& query) {
  if (!mask || !mask->defined()) return true;
  const bool known = mask->scalar_type() == at::kBool || c10::isFloatingType(mask->scalar_type());
  return known && !mask->requires_grad() && (mask->dim() == 2 || mask->dim() == 4) && as_lazy(*mask) &&
         query.size(2) > 0;
}

bool fits_one_node(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& mask,
                   double dropout, bool grouped) {
  const bool ranks = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  if (!ranks || dropout != 0 || !as_lazy(query) || !as_lazy(key) || !as_lazy(value)) return false;
  const bool same_heads = query.size(1) == key.size(1);
  const bool shared_heads = grouped && key.size(1) > 0 && query.size(1) % key.size(1) == 0;
  const bool heads = key.size(1) == value.size(1) && (same_heads || shared_heads);
  const bool dims = query.size(3) == key.size(3) && query.size(3) == value.size(3);
  const bool batch = query.size(0) == key.size(0) && query.size(0) == value.size(0);
  const bool filled = query.numel() > 0 && key.numel() > 0;
  const bool floats = c10::isFloatingType(query.scalar_type()) && query.scalar_type() == key.scalar_type() &&
                      query.scalar_type() == value.scalar_type();
  return heads && dims && batch && filled && floats && mask_fits(mask, query);
}

// Chooses between flash kernel and formula as the CPU does; torch.nn.attention.sdpa_kernel says which are allowed.
int64_t choose(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& mask, double dropout,
               bool, std::optional<double>, bool grouped) {
  const at::Context& context = at::globalContext();
  if (context.userEnabledFlashSDP() && fits_one_node(query, key, value, mask, dropout, grouped)) return kOneNode;
  TORCH_CHECK(context.userEnabledMathSDP(),
              "no kernel that sdpa_kernel allows computes this attention. Expected FLASH_ATTENTION with tensors that "
              "its kernel takes, or MATH. Allow SDPBackend.MATH, too.");
  return kMaths;
}

c10::IValue additive(const OptionalTensor& mask, const Tensor& query) {
  if (!mask || !mask->defined()) return {};
  if (mask->scalar_type() != at::kBool) return mask->to(query.scalar_type());
  return Tensor(at::empty(mask->sizes(), query.options()).zero_().masked_fill(mask->logical_not(), -INFINITY));
}

using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

Forward forward(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& mask, double dropout,
                bool causal, bool, std::optional<double> scale) {
  // The result of eager's flash kernel has the layout of the query; where eager cannot use it, it is contiguous.
  const bool as_query = query.stride(3) == 1 && key.stride(3) == 1 && value.stride(3) == 1;
  Stack stack{as_query ? query : query.contiguous(), key, value, dropout, causal, additive(mask, query), scale};
  c10::Dispatcher::singleton()
      .findSchemaOrThrow("aten::_scaled_dot_product_flash_attention_for_cpu", "")
      .callBoxed(&stack);
  const Tensor unused = at::empty({0}, query.options());
  return {stack[0].toTensor(), stack[1].toTensor(), unused, unused, query.size(2), key.size(2), unused, unused, unused};
}

using Backward = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Backward backward(const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value,
                  const Tensor& mask, std::array<bool, 4>, const Tensor& out, const Tensor& logsumexp, const Tensor&,
                  const Tensor&, c10::SymInt, c10::SymInt, double dropout, bool causal, const Tensor&, const Tensor&,
                  std::optional<double> scale) {
  const OptionalTensor given = mask.defined() ? OptionalTensor(mask) : std::nullopt;
  Stack stack{gradient, query, key, value, out, logsumexp, dropout, causal, additive(given, query), scale};
  c10::Dispatcher::singleton()
      .findSchemaOrThrow("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "")
      .callBoxed(&stack);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor(), Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_scaled_dot_product_fused_attention_overrideable", forward);
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward", backward);
  library.impl("_fused_sdp_choice", choose);
}

}  // namespace spmdx::bridge

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &spmdx::bridge::choose)
}  // namespace at::native
