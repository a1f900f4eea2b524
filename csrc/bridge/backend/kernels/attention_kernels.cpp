// SPDX-License-Identifier: Apache-2.0
// Kernels of attention between a range of queries and a range of keys, which may begin anywhere in their sequences.
#include <ATen/Functions.h>

#include <algorithm>
#include <limits>

#include "bridge/backend/buffer.h"
#include "bridge/backend/kernels/flash.h"
#include "bridge/backend/number.h"
#include "bridge/backend/own_kernels.h"

namespace spmdx::bridge {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

constexpr double kNever = -std::numeric_limits<double>::infinity();  // the logsumexp of a query that sees no key

// A rectangle of scores: all queries from `query` on, and `keys` keys from `key` on. Where it is causal, query i sees
// the keys up to i, both counted from the rectangle's corner.
struct Part {
  int64_t query = 0, key = 0, keys = 0;
  bool causal = false;
};

// The arguments after the tensors: causal, mask, scale, and where queries and keys begin in their sequences.
struct Setting {
  bool causal = false;
  int mask = -1;  // index of the operand; -1: none
  const Call* call = nullptr;
  size_t scale_at = 0;
  int64_t query_start = 0, key_start = 0;
};

Setting setting_of(const Call& call, size_t at) {
  Setting setting;
  setting.causal = own_argument<bool>(call, at);
  if (const auto* mask = std::get_if<TensorArg>(&call.args.at(at + 1))) setting.mask = static_cast<int>(mask->input);
  setting.scale_at = at + 2;
  setting.query_start = own_argument<int64_t>(call, at + 3);
  setting.key_start = own_argument<int64_t>(call, at + 4);
  return setting;
}

// The parts of the scores that are computed. In causal attention query i sees key j where j ≤ i, both counted in whole
// sequences. That makes up to two parts: keys that all our queries see, and a triangle.
std::vector<Part> parts_of(const Setting& setting, int64_t queries, int64_t keys) {
  if (!setting.causal) return {{0, 0, keys, false}};
  std::vector<Part> parts;
  const int64_t key_end = setting.key_start + keys, query_end = setting.query_start + queries;
  const int64_t full = std::min(key_end, setting.query_start) - setting.key_start;
  if (full > 0) parts.push_back({0, 0, full, false});
  const int64_t corner = std::max(setting.key_start, setting.query_start);
  const int64_t triangle = std::min(key_end, query_end) - corner;
  if (triangle > 0) parts.push_back({corner - setting.query_start, corner - setting.key_start, triangle, true});
  return parts;
}

Tensor from(const Tensor& tensor, int64_t query) { return tensor.narrow(2, query, tensor.size(2) - query); }

// The operands of one part. Where there is a mask, attention is not causal, so that the only part is the whole.
Attention in_part(const Attention& of, const Part& part) {
  return {from(of.query, part.query),
          of.key.narrow(2, part.key, part.keys),
          of.value.narrow(2, part.key, part.keys),
          of.mask,
          of.scale,
          part.causal};
}

Attended attend(const Attention& of) {
  auto [out, logsumexp] = flash(of);
  if (of.mask) {
    // ATen says 0 for the logsumexp of a row that sees no key.
    const Tensor& mask = *of.mask;
    const Tensor hidden = (mask.scalar_type() == at::kBool ? mask.logical_not() : mask.eq(kNever)).all(-1);
    logsumexp = logsumexp.masked_fill(hidden, kNever);
  }
  return {out, logsumexp};
}

// exp(a − b); 0 where `a` is the logsumexp of no keys.
Tensor share_of(const Tensor& a, const Tensor& b) {
  return at::sub(a, b).exp_().masked_fill_(a.eq(kNever), 0).unsqueeze(-1);
}

// Adds the result for more keys to `total`: each output counts by its share of the sum of exponentials.
void merge(Attended& total, const Attended& part, int64_t query) {
  const int64_t rows = part.out.size(2);
  Tensor out = total.out.narrow(2, query, rows), logsumexp = total.logsumexp.narrow(2, query, rows);
  const Tensor both = at::logaddexp(logsumexp, part.logsumexp);
  out.copy_(at::add(at::mul(out, share_of(logsumexp, both)), at::mul(part.out, share_of(part.logsumexp, both))));
  logsumexp.copy_(both);
}

// All parts together. The output of several parts has the dtype of the logsumexp: f32 for 16-bit operands.
Attended attend_parts(const Attention& of, const Setting& setting) {
  const std::vector<Part> parts = parts_of(setting, of.query.size(2), of.key.size(2));
  if (parts.size() == 1 && parts[0].query == 0) return attend(in_part(of, parts[0]));
  const auto wide = of.query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  std::vector<int64_t> rows = of.query.sizes().vec();
  rows.pop_back();
  Attended total{at::zeros(of.query.sizes(), of.query.options().dtype(wide)),
                 at::full(rows, kNever, of.query.options().dtype(wide))};
  for (const Part& part : parts) merge(total, attend(in_part(of, part)), part.query);
  return total;
}

// ATen's kernel assumes that rows are contiguous, and does not check it.
Tensor dense(const BufferRef& buffer) { return tensor_of(buffer).contiguous(); }

Attention operands_of(std::span<const BufferRef> inputs, size_t first, const Setting& setting,
                      std::optional<double> scale) {
  std::optional<Tensor> mask;
  if (setting.mask >= 0) mask = dense(inputs[static_cast<size_t>(setting.mask)]);
  return {dense(inputs[first]), dense(inputs[first + 1]), dense(inputs[first + 2]), mask, scale};
}

// Computes with q, k and v, the operands from `first` on, and with settings from the arguments from `at` on.
Compute with_setting(const Call& call, size_t first, size_t at,
                     Tensors (*compute)(const Attention&, const Setting&, std::span<const BufferRef>)) {
  return [call, first, setting = setting_of(call, at), compute](std::span<const BufferRef> inputs,
                                                                std::span<const Param> params) -> Tensors {
    std::optional<double> scale;
    if (!std::holds_alternative<std::monostate>(call.args.at(setting.scale_at)))
      scale = number(call, setting.scale_at).real(params);
    return compute(operands_of(inputs, first, setting, scale), setting, inputs);
  };
}

// (q, k, v, causal, mask, scale, query_start, key_start) -> (out, logsumexp)
Tensors attention(const Attention& of, const Setting& setting, std::span<const BufferRef>) {
  Attended result = attend_parts(of, setting);
  return {result.out.to(of.query.scalar_type()), result.logsumexp.masked_fill(result.logsumexp.eq(kNever), 0)};
}

// (q, k, v, …) -> a number for each row, near enough to the row's largest score that exponentials of differences do not
// overflow: the logsumexp over the keys that are here
Tensors attention_top(const Attention& of, const Setting& setting, std::span<const BufferRef>) {
  return {attend_parts(of, setting).logsumexp};
}

// (q, k, v, top, …) -> (Σ exp(s − top)·v, Σ exp(s − top)) over the keys that are here
Tensors attention_sums(const Attention& of, const Setting& setting, std::span<const BufferRef> inputs) {
  const Attended here = attend_parts(of, setting);
  const Tensor weight = share_of(here.logsumexp, tensor_of(inputs[3]));
  return {at::mul(here.out, weight), weight.squeeze(-1)};
}

// (grad, q, k, v, out, logsumexp, …) -> (dq, dk, dv), each over the queries and keys that are here
Tensors attention_backward(const Attention& of, const Setting& setting, std::span<const BufferRef> inputs) {
  const Tensor grad = dense(inputs[0]), out = dense(inputs[4]), logsumexp = dense(inputs[5]);
  Tensors total = {at::zeros_like(of.query), at::zeros_like(of.key), at::zeros_like(of.value)};
  for (const Part& part : parts_of(setting, of.query.size(2), of.key.size(2))) {
    const Attended result{from(out, part.query), from(logsumexp, part.query)};
    const auto [dq, dk, dv] = flash_backward(in_part(of, part), from(grad, part.query), result);
    from(total[0], part.query).add_(dq);
    total[1].narrow(2, part.key, part.keys).add_(dk);
    total[2].narrow(2, part.key, part.keys).add_(dv);
  }
  return total;
}

const OwnKernels attention_kernels = {
    {"spmdx.attention", [](const Call& call) { return with_setting(call, 0, 3, attention); }},
    {"spmdx.attention_top", [](const Call& call) { return with_setting(call, 0, 3, attention_top); }},
    {"spmdx.attention_sums", [](const Call& call) { return with_setting(call, 0, 4, attention_sums); }},
    {"spmdx.attention_backward", [](const Call& call) { return with_setting(call, 1, 6, attention_backward); }},
};

}  // namespace
}  // namespace spmdx::bridge
