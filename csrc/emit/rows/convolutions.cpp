// SPDX-License-Identifier: Apache-2.0
// Convolutions, their transposes and gradients, each as one convolution of StableHLO.
// Source: V. Dumoulin and F. Visin, A guide to convolution arithmetic for deep learning, 2016.
#include <algorithm>
#include <numeric>

#include "emit/rows/site.h"

namespace spmdx::emit {
namespace {

using Sizes = std::vector<int64_t>;

// As aten.convolution has them.
struct Settings {
  Sizes stride, padding, dilation;
  bool transposed = false;
  Sizes output_padding;
  int64_t groups = 1;
};

Settings settings(const Site& site, size_t arg, size_t dims) {
  return {site.list(arg, dims, 1),     site.list(arg + 1, dims, 0),
          site.list(arg + 2, dims, 1), boolean(site.call(), arg + 3, false),
          site.list(arg + 4, dims, 0), integer(site.call(), arg + 5, 1)};
}

// What a convolution of StableHLO is told beside its operands.
struct ConvolutionWindow {
  Sizes stride, low, high, of_input, of_kernel;  // dilations of both
  int64_t groups = 1, batch_groups = 1;
  const char *input = "b, f", *kernel = "o, i", *output = "b, f";  // the two dims before those of space
};

std::string bools(size_t count, bool value) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += std::string(i ? ", " : "") + (value ? "true" : "false");
  return "array<i1: " + text + ">";
}

// The input with zeros between its elements, and less at its ends where a padding is negative: not all compilers take
// a convolution that does these itself. The padding that is left is in `window`.
Tensor spread(Writer& write, const Tensor& input, ConvolutionWindow& window) {
  Sizes low(2, 0), high(2, 0), between(2, 0);
  bool any = false;
  for (size_t d = 0; d < window.low.size(); ++d) {
    low.push_back(std::min<int64_t>(window.low[d], 0));
    high.push_back(std::min<int64_t>(window.high[d], 0));
    between.push_back(window.of_input[d] - 1);
    any |= low.back() || high.back() || between.back();
    window.low[d] -= low.back();
    window.high[d] -= high.back();
    window.of_input[d] = 1;
  }
  return any ? write.pad(input, low, high, between) : input;
}

Tensor convolution(Writer& write, const Tensor& whole, const Tensor& kernel, const Shape& shape,
                   ConvolutionWindow window) {
  const size_t dims = shape.size() - 2;
  const Tensor input = spread(write, whole, window);
  std::string space;
  for (size_t d = 0; d < dims; ++d) space += ", " + std::to_string(d);
  const auto side = [&](const char* first) { return "[" + std::string(first) + space + "]"; };
  const DType dtype = input.type.dtype;
  const bool is_short = is_floating(dtype) && itemsize(dtype) < 4;
  const std::string attributes =
      "batch_group_count = " + std::to_string(window.batch_groups) + " : i64, dimension_numbers = #stablehlo.conv<" +
      side(window.input) + "x" + side(window.kernel) + "->" + side(window.output) +
      ">, feature_group_count = " + std::to_string(window.groups) +
      " : i64, window_strides = " + mlir_array(window.stride) + ", padding = " + mlir_pairs(window.low, window.high) +
      ", lhs_dilation = " + mlir_array(window.of_input) + ", rhs_dilation = " + mlir_array(window.of_kernel) +
      ", window_reversal = " + bools(dims, false) + ", " + precision(dtype);
  const TensorType made{is_short ? DType::f32 : dtype, shape};
  return write.convert(write.op("convolution", {input, kernel}, made, attributes), dtype);
}

Tensor direct(Writer& write, const Tensor& input, const Tensor& weight, const Shape& shape, const Settings& of) {
  const Sizes ones(of.stride.size(), 1);
  return convolution(write, input, weight, shape, {of.stride, of.padding, of.padding, ones, of.dilation, of.groups});
}

// The gradient of what a transposed convolution was given, which an output padding may have made larger.
Tensor of_transposed(Writer& write, const Tensor& grad, const Tensor& weight, const Shape& shape, const Settings& of) {
  ConvolutionWindow window{of.stride, of.padding, {}, Sizes(of.stride.size(), 1), of.dilation, of.groups};
  for (size_t d = 0; d < of.stride.size(); ++d) {
    const int64_t reach = (shape[d + 2] - 1) * of.stride[d] + of.dilation[d] * (weight.type.shape[d + 2] - 1) + 1;
    window.high.push_back(reach - grad.type.shape[d + 2] - of.padding[d]);
  }
  return convolution(write, grad, weight, shape, window);
}

// [in, out / groups, …] becomes [in / groups, out, …], as groups of a kernel are counted by its outputs.
Tensor regrouped(Writer& write, const Tensor& weight, int64_t groups) {
  if (groups == 1) return weight;
  const Shape& shape = weight.type.shape;
  Shape apart{groups, shape[0] / groups}, together{shape[0] / groups, groups * shape[1]};
  apart.insert(apart.end(), shape.begin() + 1, shape.end());
  together.insert(together.end(), shape.begin() + 2, shape.end());
  Sizes dims(apart.size());
  std::iota(dims.begin(), dims.end(), 0);
  std::swap(dims[0], dims[1]);
  return write.reshape(write.transpose(write.reshape(weight, apart), dims), together);
}

Tensor reversed(Writer& write, const Tensor& kernel) {
  Sizes dims(kernel.type.shape.size() - 2);
  std::iota(dims.begin(), dims.end(), 2);
  return write.op("reverse", {kernel}, kernel.type, "dimensions = " + mlir_array(dims));
}

// What a transposed convolution with this weight gives: `shape`, whatever the output padding would be.
Tensor transposed(Writer& write, const Tensor& input, const Tensor& weight, const Shape& shape, const Settings& of) {
  ConvolutionWindow window;
  const size_t dims = of.stride.size();
  window.stride = Sizes(dims, 1);
  window.of_input = of.stride;
  window.of_kernel = of.dilation;
  window.groups = of.groups;
  window.kernel = "i, o";
  for (size_t d = 0; d < dims; ++d) {
    const int64_t reach = of.dilation[d] * (weight.type.shape[d + 2] - 1);
    window.low.push_back(reach - of.padding[d]);
    window.high.push_back(shape[d + 2] - 1 - (input.type.shape[d + 2] - 1) * of.stride[d] + of.padding[d]);
  }
  return convolution(write, input, reversed(write, regrouped(write, weight, of.groups)), shape, window);
}

// The gradient of a direct convolution's weight: its input with the gradient of what it gave as kernel.
Tensor of_weight(Writer& write, const Tensor& input, const Tensor& grad, const Shape& shape, const Settings& of) {
  ConvolutionWindow window;
  window.stride = of.dilation;
  window.of_input = Sizes(of.stride.size(), 1);
  window.of_kernel = of.stride;
  window.batch_groups = of.groups;
  window.input = "f, b";
  window.kernel = "i, o";
  window.output = "f, b";
  for (size_t d = 0; d < of.stride.size(); ++d) {
    const int64_t reach = (grad.type.shape[d + 2] - 1) * of.stride[d] + 1;
    window.low.push_back(of.padding[d]);
    window.high.push_back((shape[d + 2] - 1) * of.dilation[d] + reach - input.type.shape[d + 2] - of.padding[d]);
  }
  return convolution(write, input, grad, shape, window);
}

void require_elements(const Site& site) {
  for (const TensorType& type : site.call().inputs)
    if (numel(type.shape) == 0) refuse(site, "a convolution of no elements");
}

std::vector<Tensor> forward(Site& site) {
  Writer& write = site.write;
  require_elements(site);
  const Tensor input = site.tensor(0), weight = site.tensor(1);
  const Settings of = settings(site, 3, input.type.shape.size() - 2);
  const Shape& shape = site.result().shape;
  Tensor made = of.transposed ? transposed(write, input, weight, shape, of) : direct(write, input, weight, shape, of);
  if (site.has_tensor(2)) made = write.binary("add", made, write.broadcast(site.tensor(2), shape, {1}));
  return {made};
}

std::vector<Tensor> backward(Site& site) {
  Writer& write = site.write;
  require_elements(site);
  const Tensor grad = site.tensor(0), input = site.tensor(1), weight = site.tensor(2);
  Settings of = settings(site, 4, input.type.shape.size() - 2);
  const auto* mask = std::get_if<std::vector<bool>>(&argument(site.call(), 10));
  const auto asks = [&](size_t i) { return !mask || (*mask)[i]; };
  std::vector<Tensor> found(3);
  const Shape &of_input = input.type.shape, &weights = weight.type.shape;
  if (asks(0) && of.transposed) found[0] = of_transposed(write, grad, weight, of_input, of);
  if (asks(0) && !of.transposed) found[0] = transposed(write, grad, weight, of_input, of);
  if (asks(1))
    found[1] = of.transposed ? of_weight(write, grad, input, weights, of) : of_weight(write, input, grad, weights, of);
  if (asks(2)) {
    Sizes dims(grad.type.shape.size());
    std::iota(dims.begin(), dims.end(), 0);
    dims.erase(dims.begin() + 1);
    found[2] = write.sum(grad, dims);
  }
  return found;
}

}  // namespace

void add_convolutions(Table& table) {
  table["aten.convolution"] = forward;
  table["aten.convolution_backward"] = backward;
}

}  // namespace spmdx::emit
