// SPDX-License-Identifier: Apache-2.0
// Kernels of spmdx.random.*: fill the box that a device holds with the numbers of the global tensor.
#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <numbers>

#include "base/error.h"
#include "base/order_of_keys.h"
#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/number.h"
#include "bridge/backend/own_kernels.h"
#include "bridge/backend/random/random_by_tensors.h"
#include "bridge/backend/random/random_region.h"
#include "bridge/backend/shard_device.h"

namespace spmdx::bridge {
namespace {

const std::vector<int64_t>& ints(const Call& call, size_t index) {
  internal_check(index < call.args.size() && std::holds_alternative<std::vector<int64_t>>(call.args[index]),
                 call.op + " lacks a list of sizes");
  return std::get<std::vector<int64_t>>(call.args[index]);
}

c10::ScalarType dtype_of(const Call& call, size_t index) {
  internal_check(index < call.args.size() && std::holds_alternative<DType>(call.args[index]),
                 call.op + " lacks its dtype");
  return to_scalar_type(std::get<DType>(call.args[index]));
}

template <class T>
void fill_uniform(T* out, const Region& region, const ElementWords& draw, double low, double high) {
  if (!(low < high)) return static_cast<void>(std::fill(out, out + region.elements(), static_cast<T>(low)));
  const T last = greatest_below<T>(high);
  const auto clip = [=](auto value) {
    const T rounded = static_cast<T>(value);
    return static_cast<double>(rounded) < high ? rounded : last;
  };
  if constexpr (std::is_same_v<T, double>) {
    fill_region(out, region, draw, [=](const PhiloxWords& w) { return clip(low + unit_53(w.first) * (high - low)); });
  } else {
    const auto from = static_cast<float>(low), span = static_cast<float>(high - low);
    fill_region(out, region, draw, [=](const PhiloxWords& w) { return clip(from + unit_24(w.first) * span); });
  }
}

using Fill =
    std::function<void(at::Tensor& out, const Region& region, const ElementWords& draw, std::span<const Param> params)>;

// Fills a floating tensor: numbers(batch, out) writes the numbers of a batch as doubles, which are converted to the
// tensor's dtype.
template <class Numbers>
void fill_floating(at::Tensor& out, const Region& region, const ElementWords& draw, const Numbers& numbers) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "random numbers", [&] {
    auto* to = out.mutable_data_ptr<scalar_t>();
    visit_batches(region, draw, [&](const Batch& batch) {
      std::array<double, Batch::kMost> drawn;
      const std::span filled = std::span(drawn).first(static_cast<size_t>(batch.count));
      numbers(batch, filled);
      std::transform(filled.begin(), filled.end(), to + batch.begin, [](double x) { return static_cast<scalar_t>(x); });
    });
  });
}

auto normals(double mean, double deviation) {
  return [=](const Batch& batch, std::span<double> out) {
    normal_fill(batch.first.data(), batch.second.data(), mean, deviation, out);
  };
}

Fill prepare_uniform(const Call& call) {
  return [low = number(call, 4), high = number(call, 5)](at::Tensor& out, const Region& region,
                                                         const ElementWords& draw, std::span<const Param> params) {
    const double from = low.real(params), to = high.real(params);
    check_bounds(from, to);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "uniform",
                                    [&] { fill_uniform(out.mutable_data_ptr<scalar_t>(), region, draw, from, to); });
  };
}

Fill prepare_normal(const Call& call) {
  return [mean = number(call, 4), std = number(call, 5)](at::Tensor& out, const Region& region,
                                                         const ElementWords& draw, std::span<const Param> params) {
    const double centre = mean.real(params), width = std.real(params);
    require_that(width >= 0, "normal got the standard deviation " + std::to_string(width) +
                                 ". Expected a number that is not negative. Pass its absolute value.");
    if (out.is_complex()) {
      const double half = width * std::numbers::sqrt2 / 2;
      AT_DISPATCH_COMPLEX_TYPES(out.scalar_type(), "normal", [&] {
        fill_region(out.mutable_data_ptr<scalar_t>(), region, draw, [=](const PhiloxWords& words) {
          const NormalPair pair = normal_pair(words);
          using Part = typename scalar_t::value_type;
          return scalar_t(static_cast<Part>(centre + half * pair.first), static_cast<Part>(half * pair.second));
        });
      });
      return;
    }
    fill_floating(out, region, draw, normals(centre, width));
  };
}

Fill prepare_exponential(const Call& call) {
  return [lambd = number(call, 4)](at::Tensor& out, const Region& region, const ElementWords& draw,
                                   std::span<const Param> params) {
    const double rate = lambd.real(params);
    require_that(rate > 0,
                 "exponential got the rate " + std::to_string(rate) + ". Expected lambd > 0. Pass another rate.");
    fill_floating(out, region, draw,
                  [=](const Batch& batch, std::span<double> to) { exponential_fill(batch.first.data(), rate, to); });
  };
}

Fill prepare_log_normal(const Call& call) {
  return [mean = number(call, 4), std = number(call, 5)](at::Tensor& out, const Region& region,
                                                         const ElementWords& draw, std::span<const Param> params) {
    const double centre = mean.real(params), width = std.real(params);
    fill_floating(out, region, draw, [exponents = normals(centre, width)](const Batch& batch, std::span<double> to) {
      exponents(batch, to);
      for (double& number : to) number = std::exp(number);
    });
  };
}

Fill prepare_cauchy(const Call& call) {
  return [median = number(call, 4), sigma = number(call, 5)](at::Tensor& out, const Region& region,
                                                             const ElementWords& draw, std::span<const Param> params) {
    const double centre = median.real(params), width = sigma.real(params);
    fill_floating(out, region, draw, [=](const Batch& batch, std::span<double> to) {
      for (size_t i = 0; i < to.size(); ++i)
        to[i] = centre + width * std::tan(std::numbers::pi * (open_unit(batch.first[i]) - 0.5));
    });
  };
}

#define SPMDX_EVERY_REAL_TYPE                                                                                    \
  AT_EXPAND(AT_INTEGRAL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), AT_EXPAND(AT_FLOATING_TYPES), at::kHalf, \
      at::kBFloat16, at::kBool

Fill prepare_bernoulli(const Call& call) {
  return [chance = number(call, 4)](at::Tensor& out, const Region& region, const ElementWords& draw,
                                    std::span<const Param> params) {
    const double p = chance.real(params);
    check_probability(p);
    AT_DISPATCH_V2(out.scalar_type(), "bernoulli", AT_WRAP([&] {
                     fill_region(out.mutable_data_ptr<scalar_t>(), region, draw, [=](const PhiloxWords& words) {
                       return static_cast<scalar_t>(unit_53(words.first) < p ? 1 : 0);
                     });
                   }),
                   SPMDX_EVERY_REAL_TYPE);
  };
}

// The number of trials up to and including the first success.
Fill prepare_geometric(const Call& call) {
  return [chance = number(call, 4)](at::Tensor& out, const Region& region, const ElementWords& draw,
                                    std::span<const Param> params) {
    const double failure = std::log1p(-chance.real(params));
    AT_DISPATCH_V2(out.scalar_type(), "geometric", AT_WRAP([&] {
                     fill_region(out.mutable_data_ptr<scalar_t>(), region, draw, [=](const PhiloxWords& words) {
                       return static_cast<scalar_t>(std::ceil(log_of(open_unit(words.first)) / failure));
                     });
                   }),
                   SPMDX_EVERY_REAL_TYPE);
  };
}

Fill prepare_randint(const Call& call) {
  return [low = number(call, 4), high = number(call, 5)](at::Tensor& out, const Region& region,
                                                         const ElementWords& draw, std::span<const Param> params) {
    const int64_t from = low.whole(params), to = high.whole(params);
    require_that(from < to, "randint got low " + std::to_string(from) + " and high " + std::to_string(to) +
                                ". Expected low < high. Pass a range that is not empty.");
    const uint64_t range = static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
    AT_DISPATCH_V2(out.scalar_type(), "randint", AT_WRAP([&] {
                     fill_region(out.mutable_data_ptr<scalar_t>(), region, draw, [=](const PhiloxWords& words) {
                       return static_cast<scalar_t>(bounded(words.first, from, range));
                     });
                   }),
                   SPMDX_EVERY_REAL_TYPE);
  };
}

struct Distribution {
  Fill (*prepare)(const Call& call);
  size_t seed = 0;  // index of the argument that is the seed; the draw follows
};

const std::map<std::string_view, Distribution> kDistributions = {
    {"spmdx.random.cauchy", {prepare_cauchy, 6}},         {"spmdx.random.geometric", {prepare_geometric, 5}},
    {"spmdx.random.log_normal", {prepare_log_normal, 6}}, {"spmdx.random.uniform", {prepare_uniform, 6}},
    {"spmdx.random.normal", {prepare_normal, 6}},         {"spmdx.random.bernoulli", {prepare_bernoulli, 5}},
    {"spmdx.random.randint", {prepare_randint, 6}},       {"spmdx.random.exponential", {prepare_exponential, 5}},
};

class RandomKernel final : public Kernel {
 public:
  RandomKernel(const Call& call, const Distribution& row)
      : region_{ints(call, 0), ints(call, 1), ints(call, 2)},
        dtype_(dtype_of(call, 3)),
        fill_(row.prepare(call)),
        by_tensors_(prepare_by_tensors(call)),
        seed_(number(call, row.seed)),
        draw_(number(call, row.seed + 1)) {
    const size_t rank = region_.sizes.size();
    internal_check(region_.starts.size() == rank && region_.extents == call.outputs.at(0).shape,
                   call.op + " fills another box than its plan expects");
  }

  void run(std::span<const BufferRef>, std::span<const Param> params, std::span<BufferRef> outputs, int) override {
    KernelGuard guard;
    const ElementWords draw{static_cast<uint64_t>(seed_.whole(params)), static_cast<uint64_t>(draw_.whole(params))};
    if (!shard_device().is_cpu() && by_tensors_ && numel(region_.extents) > 0) {
      outputs[0] = buffer_of(by_tensors_(region_, dtype_, draw, params));
      return;
    }
    at::Tensor out = at::empty(region_.extents, dtype_);
    fill_(out, region_, draw, params);
    outputs[0] = lent(out);
  }

 private:
  Region region_;
  c10::ScalarType dtype_;
  Fill fill_;
  FillByTensors by_tensors_;  // null: the CPU draws, wherever shards lie
  Number seed_, draw_;
};

// The indices sorted by random keys. Indices of equal keys keep their order, so that every machine has the same result.
class RandpermKernel final : public Kernel {
 public:
  explicit RandpermKernel(const Call& call)
      : size_(number(call, 0)), dtype_(dtype_of(call, 1)), seed_(number(call, 2)), draw_(number(call, 3)) {}

  void run(std::span<const BufferRef>, std::span<const Param> params, std::span<BufferRef> outputs, int) override {
    KernelGuard guard;
    const int64_t size = size_.whole(params);
    require_that(size >= 0, "randperm got " + std::to_string(size) + ". Expected a size that is not negative.");
    const ElementWords draw{static_cast<uint64_t>(seed_.whole(params)), static_cast<uint64_t>(draw_.whole(params))};
    const auto count = static_cast<size_t>(size);
    const int bits = bits_of_indices(count);
    const std::unique_ptr<uint64_t[]> keys(new uint64_t[count]);  // every one is written below
    visit_batches({{size}, {0}, {size}}, draw, [&](const Batch& batch) {
      for (int64_t i = 0; i < batch.count; ++i)
        keys[static_cast<size_t>(batch.begin + i)] =
            packed_key(batch.words(i).first, static_cast<uint64_t>(batch.begin + i), bits);
    });
    at::Tensor order = at::empty({size}, at::kLong);
    const std::span indices(reinterpret_cast<uint64_t*>(order.mutable_data_ptr<int64_t>()), count);
    order_by_keys({keys.get(), count}, indices, bits, [&](uint64_t index) { return draw.words(index).first; });
    outputs[0] = lent(order.to(dtype_));
  }

 private:
  Number size_;
  c10::ScalarType dtype_;
  Number seed_, draw_;
};

std::unique_ptr<Kernel> prepare_randperm(const Call& call) { return std::make_unique<RandpermKernel>(call); }
std::unique_ptr<Kernel> prepare_distribution(const Call& call) {
  return std::make_unique<RandomKernel>(call, kDistributions.at(call.op));
}

const OwnKernels permutations = {{"spmdx.random.randperm", prepare_randperm}};
const OwnKernels distributions(prepare_distribution, kDistributions);

}  // namespace
}  // namespace spmdx::bridge
