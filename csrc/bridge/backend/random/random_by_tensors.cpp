// SPDX-License-Identifier: Apache-2.0
// Random numbers drawn on an accelerator by ops of ATen: Philox on tensors of integers, and exact arithmetic, so that
// every number is the one that the CPU draws.
#include "bridge/backend/random/random_by_tensors.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <map>

#include "bridge/backend/number.h"
#include "bridge/backend/shard_device.h"

namespace spmdx::bridge {
namespace {

using at::Tensor;

constexpr int64_t kLow32 = 0xFFFFFFFF;
constexpr int64_t kChunk = int64_t{1} << 22;  // elements at a time: a few temporaries of 8 bytes each

// Halves of 64-bit words in tensors of int64, whose products wrap around as those of unsigned integers do.
Tensor low(const Tensor& words) { return at::bitwise_and(words, kLow32); }
Tensor high(const Tensor& words) { return at::bitwise_right_shift(words, 32).bitwise_and_(kLow32); }

// The PhiloxWords of some elements, as tensors of int64.
struct Words {
  Tensor first, second;
};

// The algorithm of base/philox.h, on tensors.
Words philox_of(const Tensor& elements, const ElementWords& draw) {
  constexpr int64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  auto key0 = static_cast<uint32_t>(draw.seed), key1 = static_cast<uint32_t>(draw.seed >> 32);
  const auto same = [&](uint64_t word) {
    return at::full_like(elements, static_cast<int64_t>(word & static_cast<uint64_t>(kLow32)));
  };
  std::array<Tensor, 4> counter = {low(elements), high(elements), same(draw.draw), same(draw.draw >> 32)};
  for (int round = 0; round < 10; ++round) {
    const Tensor product0 = at::mul(counter[0], kMultiplier0), product1 = at::mul(counter[2], kMultiplier1);
    counter = {high(product1).bitwise_xor_(counter[1]).bitwise_xor_(static_cast<int64_t>(key0)), low(product1),
               high(product0).bitwise_xor_(counter[3]).bitwise_xor_(static_cast<int64_t>(key1)), low(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  const auto joined = [&](int i) { return at::bitwise_left_shift(counter[i + 1], 32).bitwise_or_(counter[i]); };
  return {joined(0), joined(2)};
}

// word >> shift, where words are unsigned.
Tensor shifted(const Tensor& words, int64_t shift) {
  return at::bitwise_right_shift(words, shift).bitwise_and_((int64_t{1} << (64 - shift)) - 1);
}
Tensor unit_24_of(const Tensor& words) { return shifted(words, 40).to(at::kFloat).mul_(0x1p-24); }
Tensor unit_53_of(const Tensor& words) { return shifted(words, 11).to(at::kDouble).mul_(0x1p-53); }

// The global indices of the local elements [begin, end).
Tensor elements_of(const Region& region, int64_t begin, int64_t end) {
  const Tensor local = at::arange(begin, end, on_shard_device(at::kLong));
  Tensor global = at::zeros_like(local);
  int64_t inner = 1, stride = 1;
  for (size_t d = region.extents.size(); d-- > 0;) {
    const Tensor at_dim = at::div(local, inner, "floor").remainder_(region.extents[d]);
    global.add_(at_dim.add_(region.starts[d]), stride);
    inner *= region.extents[d];
    stride *= region.sizes[d];
  }
  return global;
}

// Fills the region in chunks: `make` turns the words of some elements into their numbers.
template <class Make>
Tensor filled(const Region& region, c10::ScalarType dtype, const ElementWords& draw, const Make& make) {
  Tensor out = at::empty(region.extents, on_shard_device(dtype));
  Tensor row = out.view(-1);
  for (int64_t begin = 0; begin < row.numel(); begin += kChunk) {
    const int64_t end = std::min(begin + kChunk, row.numel());
    row.narrow(0, begin, end - begin).copy_(make(philox_of(elements_of(region, begin, end), draw)));
  }
  return out;
}

// The values in this dtype; a number that rounding has brought up to `high` becomes the greatest one below it.
Tensor clipped(const Tensor& values, c10::ScalarType dtype, double high) {
  const Tensor rounded = values.to(dtype);
  return at::where(rounded.to(at::kDouble).lt(high), rounded, greatest_below(high, dtype));
}

FillByTensors uniform(const Call& call) {
  return [from = number(call, 4), to = number(call, 5)](const Region& region, c10::ScalarType dtype,
                                                        const ElementWords& draw, std::span<const Param> params) {
    const double low = from.real(params), high = to.real(params);
    check_bounds(low, high);
    if (!(low < high)) return at::full(region.extents, low, on_shard_device(dtype));
    return filled(region, dtype, draw, [=](const Words& words) {
      const bool wide = dtype == at::kDouble;
      const Tensor unit = wide ? unit_53_of(words.first) : unit_24_of(words.first);
      const double span = wide ? high - low : static_cast<float>(high - low);
      return clipped(at::add(at::mul(unit, span), wide ? low : static_cast<float>(low)), dtype, high);
    });
  };
}

FillByTensors bernoulli(const Call& call) {
  return [chance = number(call, 4)](const Region& region, c10::ScalarType dtype, const ElementWords& draw,
                                    std::span<const Param> params) {
    const double p = chance.real(params);
    check_probability(p);
    return filled(region, dtype, draw, [p](const Words& words) { return unit_53_of(words.first).lt(p); });
  };
}

}  // namespace

FillByTensors prepare_by_tensors(const Call& call) {
  static const std::map<std::string_view, FillByTensors (*)(const Call&)> known = {
      {"spmdx.random.bernoulli", bernoulli}, {"spmdx.random.uniform", uniform}};
  const auto row = known.find(call.op);
  return row == known.end() ? nullptr : row->second(call);
}

}  // namespace spmdx::bridge
