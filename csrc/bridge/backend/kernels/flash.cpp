// SPDX-License-Identifier: Apache-2.0
// Flash attention: ATen's kernel on the CPU; a fused one, or matrix products and a softmax, on accelerators.
#include "bridge/backend/kernels/flash.h"

#include <ATen/Functions.h>

#include <cmath>
#include <limits>

#include "bridge/backend/buffer.h"
#include "bridge/backend/kernels/fused_attention.h"
#include "bridge/backend/number.h"
#include "bridge/backend/own_kernels.h"

namespace spmdx::bridge {
namespace {

using at::Tensor;

c10::ScalarType wide(const Tensor& tensor) { return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// The operands in the dtype of the computation, with heads repeated; and the scores.
struct Scores {
  Tensor query, key, value, scores;
  double scale = 1;

  explicit Scores(const Attention& of) {
    const auto type = wide(of.query);
    const int64_t heads = of.query.size(1);
    query = of.query.to(type);
    key = spread(of.key.to(type), heads);
    value = spread(of.value.to(type), heads);
    scale = of.scale.value_or(1 / std::sqrt(static_cast<double>(of.query.size(3))));
    scores = at::matmul(query, key.transpose(-2, -1)).mul_(scale);
    if (of.mask) scores.add_(*of.mask);
    if (of.causal) {
      const auto seen = at::ones({query.size(2), key.size(2)}, query.options().dtype(at::kBool)).tril_();
      scores.masked_fill_(seen.logical_not_(), -std::numeric_limits<double>::infinity());
    }
  }
};

Attended by_products(const Attention& of) {
  Scores from(of);
  Tensor logsumexp = from.scores.logsumexp(-1);
  logsumexp.masked_fill_(logsumexp.eq(-std::numeric_limits<double>::infinity()), 0);
  const Tensor weights = from.scores.sub_(logsumexp.unsqueeze(-1)).exp_();
  return {at::matmul(weights, from.value).to(of.query.scalar_type()), logsumexp};
}

// T. Dao et al., "FlashAttention", NeurIPS 2022, appendix B, for one block.
std::array<Tensor, 3> by_products_backward(const Attention& of, const Tensor& grad, const Attended& result) {
  Scores from(of);
  const Tensor weights = from.scores.sub_(result.logsumexp.unsqueeze(-1)).exp_(), rows = grad.to(wide(grad));
  const Tensor along = at::mul(rows, result.out).sum(-1, true);
  const Tensor of_scores = at::matmul(rows, from.value.transpose(-2, -1)).sub_(along).mul_(weights).mul_(from.scale);
  const auto type = of.query.scalar_type();
  return {at::matmul(of_scores, from.key).to(type),
          gathered(at::matmul(of_scores.transpose(-2, -1), from.query), of.key.size(1)).to(type),
          gathered(at::matmul(weights.transpose(-2, -1), rows), of.value.size(1)).to(type)};
}

Attended on_accelerator(const Attention& of) {
  std::optional<Attended> fused = fused_attention(of);
  return fused ? std::move(*fused) : by_products(of);
}

std::array<Tensor, 3> on_accelerator_backward(const Attention& of, const Tensor& grad, const Attended& result) {
  auto fused = fused_attention_backward(of, grad, result);
  return fused ? std::move(*fused) : by_products_backward(of, grad, result);
}

}  // namespace

Attended flash(const Attention& of) {
  if (!of.query.is_cpu()) return on_accelerator(of);
  auto [out, logsumexp] =
      at::_scaled_dot_product_flash_attention_for_cpu(of.query, of.key, of.value, 0.0, of.causal, of.mask, of.scale);
  return {std::move(out), std::move(logsumexp)};
}

std::array<Tensor, 3> flash_backward(const Attention& of, const Tensor& grad, const Attended& result) {
  if (!of.query.is_cpu()) return on_accelerator_backward(of, grad, result);
  auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, of.query, of.key, of.value, result.out, result.logsumexp, 0.0, of.causal, of.mask, of.scale);
  return {std::move(query), std::move(key), std::move(value)};
}

// ---- ATen's ops of flash attention on accelerators, which have no kernel for them ------------------------

namespace {

// Tensors are the arguments from `first` on; dropout, causal, mask and scale those from `settings` on.
Attention attention_of(const Call& call, size_t first, size_t settings, std::span<const BufferRef> inputs,
                       std::span<const Param> params) {
  const auto operand = [&](size_t i) { return tensor_of(inputs[own_argument<TensorArg>(call, i).input]); };
  Attention of{operand(first), operand(first + 1), operand(first + 2), {}, {}};
  of.causal = call.args.size() > settings + 1 && own_argument<bool>(call, settings + 1);
  if (call.args.size() > settings + 2)
    if (const auto* mask = std::get_if<TensorArg>(&call.args[settings + 2])) of.mask = tensor_of(inputs[mask->input]);
  if (call.args.size() > settings + 3 && !std::holds_alternative<std::monostate>(call.args[settings + 3]))
    of.scale = number(call, settings + 3).real(params);
  return of;
}

Compute prepare_flash(const Call& call) {
  return [call](std::span<const BufferRef> inputs, std::span<const Param> params) -> std::vector<Tensor> {
    Attended result = flash(attention_of(call, 0, 3, inputs, params));
    return {std::move(result.out), std::move(result.logsumexp)};
  };
}

Compute prepare_flash_backward(const Call& call) {
  return [call](std::span<const BufferRef> inputs, std::span<const Param> params) -> std::vector<Tensor> {
    const Attended result{tensor_of(inputs[own_argument<TensorArg>(call, 4).input]),
                          tensor_of(inputs[own_argument<TensorArg>(call, 5).input])};
    auto [query, key, value] = flash_backward(attention_of(call, 1, 6, inputs, params), tensor_of(inputs[0]), result);
    return {std::move(query), std::move(key), std::move(value)};
  };
}

// On the CPU ATen's own kernels run.
const OwnKernels flash_kernels({{"aten._scaled_dot_product_flash_attention_for_cpu", prepare_flash},
                                {"aten._scaled_dot_product_flash_attention_for_cpu_backward", prepare_flash_backward}},
                               Runs::off_the_cpu);

}  // namespace
}  // namespace spmdx::bridge
