// SPDX-License-Identifier: Apache-2.0
// Kernels of random ops whose operands say the distribution of each element. Every element draws words of its own.
#include <ATen/Functions.h>
#include <ATen/native/Distributions.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/number.h"
#include "bridge/backend/own_kernels.h"
#include "bridge/backend/random/random_region.h"
#include "bridge/backend/shard_device.h"

namespace spmdx::bridge {
namespace {

// The words of one element, as many as its distribution asks for. The first are drawn already.
class ElementStream {
 public:
  ElementStream(const ElementWords& words, const Batch& batch, int64_t i) : words_(words), batch_(batch), i_(i) {}
  PhiloxWords next() {
    const PhiloxWords words =
        begun_ ? words_.words(static_cast<int64_t>(batch_.elements[static_cast<size_t>(i_)])) : batch_.words(i_);
    begun_ = true;
    words_.seed += 0x9E3779B97F4A7C15u;  // odd, so that no block of words comes twice
    return words;
  }
  double uniform() { return open_unit(next().first); }

 private:
  ElementWords words_;
  const Batch& batch_;
  int64_t i_;
  bool begun_ = false;
};

// ---- one element of the result, from the numbers that the operands hold for it -----------------------------------

double one_bernoulli(ElementStream& stream, double p_in, double) {
  TORCH_CHECK(p_in >= 0 && p_in <= 1);
  return unit_53(stream.next().first) < p_in ? 1 : 0;
}
double other_bernoulli(ElementStream& stream, double self, double p) { return one_bernoulli(stream, p, self); }

double one_gamma(ElementStream& stream, double alpha, double) {
  const auto uniform = [&stream] { return stream.uniform(); };
  const auto standard = [&stream] { return normal(stream.next()); };
  BaseSampler<double, decltype(uniform)> uniforms(uniform);
  BaseSampler<double, decltype(standard)> normals(standard);
  return std::max(std::numeric_limits<double>::min(), sample_gamma<double, double>(alpha, uniforms, normals));
}

double one_binomial(ElementStream& stream, double count, double p) {
  const auto uniform = [&stream] { return stream.uniform(); };
  BaseSampler<double, decltype(uniform)> uniforms(uniform);
  return sample_binomial<double, double>(count, p, uniforms);
}

// Counts the uniform numbers whose product stays above exp(-rate).
double small_poisson(ElementStream& stream, double rate) {
  const double least = std::exp(-rate);
  double product = stream.uniform(), count = 0;
  for (; product > least; product *= stream.uniform()) ++count;
  return count;
}

// Transformed rejection with squeeze (W. Hörmann, "The transformed rejection method for generating Poisson random
// variables", 1993).
double large_poisson(ElementStream& stream, double rate) {
  const double b = 0.931 + 2.53 * std::sqrt(rate), a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), squeeze = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = stream.uniform() - 0.5, v = stream.uniform(), distance = 0.5 - std::abs(u);
    const double count = std::floor((2 * a / distance + b) * u + rate + 0.43);
    if (distance >= 0.07 && v <= squeeze) return count;
    if (count < 0 || (distance < 0.013 && v > distance)) continue;
    const double bound = count * std::log(rate) - rate - std::lgamma(count + 1);
    if (std::log(v * inverse_alpha / (a / (distance * distance) + b)) <= bound) return count;
  }
}

double one_poisson(ElementStream& stream, double rate, double) {
  TORCH_CHECK(rate >= 0, "invalid Poisson rate, expected rate to be non-negative");
  return rate < 10 ? small_poisson(stream, rate) : large_poisson(stream, rate);
}

// ---- kernels --------------------------------------------------------------------------------------------------------

// The box that a device holds. Localising appends its place to the arguments: the sizes of the whole tensor and the
// starts of the box (random_place in rules/tensors/creation.cpp).
Region region_of(const Call& call) {
  const Shape& extents = call.outputs.at(0).shape;
  const auto* starts = std::get_if<std::vector<int64_t>>(&call.args.back());
  if (!starts) return {extents, Shape(extents.size(), 0), extents};
  return {std::get<std::vector<int64_t>>(call.args.at(call.args.size() - 2)), *starts, extents};
}

class RandomOfKernel : public Kernel {
 public:
  // `seed`: index of the argument that is the seed; the draw follows.
  RandomOfKernel(const Call& call, size_t seed)
      : region_(region_of(call)),
        dtype_(to_scalar_type(call.outputs.at(0).dtype)),
        seed_(number(call, seed)),
        draw_(number(call, seed + 1)) {}

 protected:
  ElementWords words(std::span<const Param> params) const {
    return {static_cast<uint64_t>(seed_.whole(params)), static_cast<uint64_t>(draw_.whole(params))};
  }
  Region region_;
  c10::ScalarType dtype_;

 private:
  Number seed_, draw_;
};

// The values of an argument that is a tensor or a number; zeros for any other argument.
class ValuesOf {
 public:
  ValuesOf(const Call& call, size_t index) {
    const Arg& arg = call.args.at(index);
    if (const auto* tensor = std::get_if<TensorArg>(&arg))
      operand_ = static_cast<int>(tensor->input);
    else if (!std::holds_alternative<OpaqueArg>(arg))
      number_ = number(call, index);
  }
  at::Tensor get(std::span<const BufferRef> inputs, std::span<const Param> params, const Shape& shape) const {
    const at::Tensor values = operand_ >= 0 ? tensor_of(inputs[static_cast<size_t>(operand_)]).to(at::kDouble)
                                            : at::full({}, number_.real(params), at::kDouble);
    return values.expand(shape).contiguous();
  }

 private:
  int operand_ = -1;
  Number number_;
};

// Writes the numbers of a batch, of which first[i] and second[i] are what the operands hold for local element i.
using OfBatch = void (*)(const ElementWords& drawn, const Batch& batch, const double* first, const double* second,
                         double* out);

template <double (*one)(ElementStream& stream, double first, double second)>
void one_by_one(const ElementWords& drawn, const Batch& batch, const double* first, const double* second, double* out) {
  for (int64_t i = 0; i < batch.count; ++i) {
    ElementStream stream(drawn, batch, i);
    out[batch.begin + i] = one(stream, first[batch.begin + i], second[batch.begin + i]);
  }
}

void normals(const ElementWords&, const Batch& batch, const double* mean, const double* std, double* out) {
  const std::span standard(out + batch.begin, static_cast<size_t>(batch.count));
  normal_fill(batch.first.data(), batch.second.data(), 0, 1, standard);
  for (int64_t at = batch.begin; at < batch.begin + batch.count; ++at) {
    TORCH_CHECK(std[at] >= 0, "normal expects all elements of std >= 0.0");
    out[at] = mean[at] + std[at] * out[at];
  }
}

struct ElementRow {
  OfBatch fill;
  size_t seed = 0;
  bool shares = false;  // the numbers of a row are divided by their sum
};

class ElementKernel final : public RandomOfKernel {
 public:
  ElementKernel(const Call& call, const ElementRow& row)
      : RandomOfKernel(call, row.seed), first_(call, 0), second_(call, 1), row_(row) {}

  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           int) override {
    KernelGuard guard;
    const at::Tensor first = first_.get(inputs, params, region_.extents);
    const at::Tensor second = second_.get(inputs, params, region_.extents);
    at::Tensor out = at::empty(region_.extents, at::kDouble);
    const double *a = first.const_data_ptr<double>(), *b = second.const_data_ptr<double>();
    auto* to = out.mutable_data_ptr<double>();
    const ElementWords drawn = words(params);
    visit_batches(region_, drawn, [&](const Batch& batch) { row_.fill(drawn, batch, a, b, to); });
    if (row_.shares) out = out.div(out.sum(-1, true));
    outputs[0] = buffer_of(out.to(dtype_));
  }

 private:
  ValuesOf first_, second_;
  ElementRow row_;
};

// (self, num_samples, replacement, generator): indices into the last dim of self, which is whole on every device.
class MultinomialKernel final : public RandomOfKernel {
 public:
  explicit MultinomialKernel(const Call& call)
      : RandomOfKernel(call, 4), replacement_(std::get<bool>(call.args.at(2))) {}

  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           int) override {
    KernelGuard guard;
    const at::Tensor shares = tensor_of(inputs[0]).to(at::kDouble).contiguous();
    const int64_t classes = shares.size(-1), samples = region_.extents.back();
    const int64_t first_row = region_.extents.size() > 1 ? region_.starts[0] : 0;
    at::Tensor out = at::empty(region_.extents, at::kLong);
    const auto* from = shares.const_data_ptr<double>();
    auto* to = out.mutable_data_ptr<int64_t>();
    const ElementWords drawn = words(params);
    for (int64_t row = 0; samples > 0 && row < out.numel() / samples; ++row) {
      const std::span<const double> weights(from + row * classes, static_cast<size_t>(classes));
      const std::span<int64_t> chosen(to + row * samples, static_cast<size_t>(samples));
      check(weights);
      if (replacement_)
        with_replacement(weights, chosen, drawn, (first_row + row) * samples);
      else
        without_replacement(weights, chosen, drawn, (first_row + row) * classes);
    }
    outputs[0] = buffer_of(std::move(out));
  }

 private:
  static void check(std::span<const double> weights) {
    double total = 0;
    for (double weight : weights) {
      TORCH_CHECK(weight >= 0 && weight < std::numeric_limits<double>::infinity(),
                  "probability tensor contains either `inf`, `nan` or element < 0");
      total += weight;
    }
    TORCH_CHECK(total > 0, "invalid multinomial distribution (sum of probabilities <= 0)");
  }

  static void with_replacement(std::span<const double> weights, std::span<int64_t> chosen, const ElementWords& drawn,
                               int64_t element) {
    std::vector<double> sums(weights.size());
    std::partial_sum(weights.begin(), weights.end(), sums.begin());
    // The last class of positive weight. It is chosen where rounding reaches the whole sum.
    const auto last = std::lower_bound(sums.begin(), sums.end(), sums.back());
    for (int64_t& index : chosen) {
      const double at = unit_53(drawn.words(element++).first) * sums.back();
      index = std::min(std::upper_bound(sums.begin(), sums.end(), at), last) - sums.begin();
    }
  }

  // The classes of the largest weight / (exponential number) are distributed as if they were drawn one after the other.
  static void without_replacement(std::span<const double> weights, std::span<int64_t> chosen, const ElementWords& drawn,
                                  int64_t element) {
    std::vector<std::pair<double, int64_t>> keys;
    for (size_t i = 0; i < weights.size(); ++i)
      keys.emplace_back(-weights[i] / exponential(drawn.words(element + static_cast<int64_t>(i)).first), i);
    std::partial_sort(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(chosen.size()), keys.end());
    for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = keys[i].second;
  }

  bool replacement_;
};

const std::map<std::string_view, ElementRow> kElements = {
    {"aten._sample_dirichlet", {one_by_one<one_gamma>, 2, true}},
    {"aten._standard_gamma", {one_by_one<one_gamma>, 2}},
    {"aten.bernoulli", {one_by_one<one_bernoulli>, 2}},
    {"aten.bernoulli.Tensor", {one_by_one<other_bernoulli>, 3}},
    {"aten.binomial", {one_by_one<one_binomial>, 3}},
    {"aten.normal.Tensor_Tensor", {normals, 3}},
    {"aten.normal.Tensor_float", {normals, 3}},
    {"aten.normal.float_Tensor", {normals, 3}},
    {"aten.poisson", {one_by_one<one_poisson>, 2}},
};

std::unique_ptr<Kernel> prepare_multinomial(const Call& call) { return std::make_unique<MultinomialKernel>(call); }
std::unique_ptr<Kernel> prepare_elements(const Call& call) {
  if (is_complex(call.outputs.at(0).dtype)) return nullptr;
  return std::make_unique<ElementKernel>(call, kElements.at(call.op));
}

const OwnKernels multinomial_kernels = {{"aten.multinomial", prepare_multinomial}};
const OwnKernels element_kernels(prepare_elements, kElements);

}  // namespace
}  // namespace spmdx::bridge
