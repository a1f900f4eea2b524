// SPDX-License-Identifier: Apache-2.0
// Fused attention: which kernel takes which operands, and how PyTorch calls it.
#include "bridge/backend/kernels/fused_attention.h"

#include <ATen/Functions.h>

#include <atomic>
#include <limits>

namespace spmdx::bridge {
namespace {

using at::Tensor;

enum class Fused : uint8_t { none, flash, efficient };
constexpr int64_t kAligned = 8, kWidest = 256;  // of the width, in elements, for which both kernels are made
constexpr int64_t kRowsAligned = 32;            // the efficient kernel fills up the rows of its logsumexp to this

// A kernel that a GPU has refused once (it is too old, or PyTorch was built without the kernel) is not asked for again.
std::atomic<bool> no_flash = false, no_efficient = false;

// FlashAttention ends a causal triangle in the last corner, where the definition starts it in the first one.
Fused choose(const Attention& of) {
  const int64_t width = of.query.size(3);
  if (of.mask || width % kAligned != 0 || width > kWidest || of.query.numel() == 0 || of.key.numel() == 0)
    return Fused::none;
  const auto type = of.query.scalar_type();
  const bool short_floats = type == at::kHalf || type == at::kBFloat16;
  if (short_floats && !no_flash && (!of.causal || of.query.size(2) == of.key.size(2))) return Fused::flash;
  return (short_floats || type == at::kFloat) && !no_efficient ? Fused::efficient : Fused::none;
}

template <class Result, class Call>
std::optional<Result> unless_refused(Fused kernel, Call call) {
  try {
    return call();
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error&) {
    (kernel == Fused::flash ? no_flash : no_efficient) = true;
    return std::nullopt;
  }
}

// The kernels read rows of which the elements lie side by side.
Tensor by_rows(const Tensor& tensor) { return tensor.stride(-1) == 1 ? tensor : tensor.contiguous(); }

// The operands with one head of keys for each head of queries.
Attention prepared(const Attention& of) {
  Attention with = of;
  with.query = by_rows(of.query);
  with.key = by_rows(spread(of.key, of.query.size(1)));
  with.value = by_rows(spread(of.value, of.query.size(1)));
  return with;
}

Tensor filled_up(const Tensor& logsumexp) {
  const int64_t missing = (kRowsAligned - logsumexp.size(2) % kRowsAligned) % kRowsAligned;
  return at::constant_pad_nd(logsumexp, {0, missing}, std::numeric_limits<double>::infinity()).contiguous();
}

Attended forward(const Attention& of, Fused kernel) {
  if (kernel == Fused::flash) {
    const auto results =
        at::_scaled_dot_product_flash_attention(of.query, of.key, of.value, 0.0, of.causal, false, of.scale);
    return {std::get<0>(results), std::get<1>(results)};
  }
  const auto results = at::_scaled_dot_product_efficient_attention(of.query, of.key, of.value, std::nullopt, true, 0.0,
                                                                   of.causal, of.scale);
  return {std::get<0>(results), std::get<1>(results).narrow(2, 0, of.query.size(2))};
}

std::array<Tensor, 3> backward(const Attention& of, const Tensor& grad, const Attended& result, Fused kernel) {
  const Tensor none, seed = at::zeros({}, of.query.options().dtype(at::kLong));  // without dropout it is not read
  if (kernel == Fused::flash) {
    auto [query, key, value] = at::_scaled_dot_product_flash_attention_backward(
        grad, of.query, of.key, of.value, result.out, result.logsumexp.contiguous(), none, none, of.query.size(2),
        of.key.size(2), 0.0, of.causal, seed, seed, of.scale);
    return {query, key, value};
  }
  auto results = at::_scaled_dot_product_efficient_attention_backward(
      grad, of.query, of.key, of.value, none, result.out, filled_up(result.logsumexp), seed, seed, 0.0,
      {true, true, true, false}, of.causal, of.scale);
  return {std::get<0>(results), std::get<1>(results), std::get<2>(results)};
}

}  // namespace

std::optional<Attended> fused_attention(const Attention& of) {
  const Fused kernel = choose(of);
  if (kernel == Fused::none) return std::nullopt;
  return unless_refused<Attended>(kernel, [&] { return forward(prepared(of), kernel); });
}

std::optional<std::array<Tensor, 3>> fused_attention_backward(const Attention& of, const Tensor& grad,
                                                              const Attended& result) {
  const Fused kernel = choose(of);
  if (kernel == Fused::none) return std::nullopt;
  return unless_refused<std::array<Tensor, 3>>(kernel, [&] {
    const Attended rows{by_rows(result.out), result.logsumexp};
    auto [query, key, value] = backward(prepared(of), by_rows(grad.to(of.query.scalar_type())), rows, kernel);
    return std::array<Tensor, 3>{query, gathered(key, of.key.size(1)), gathered(value, of.value.size(1))};
  });
}

}  // namespace spmdx::bridge
