// SPDX-License-Identifier: Apache-2.0
// Convolutions: letters, and expansions that add a bias once and compute each gradient as a convolution of its own.
#include "rules/stencils/convolution.h"

#include <numeric>
#include <optional>

#include "graph/args.h"
#include "rules/build/blocks.h"
#include "rules/build/letters.h"
#include "rules/stencils/planes.h"
#include "rules/stencils/stencil.h"

namespace spmdx::rules {
namespace {

// Letters of the spatial dims of the input and of the result. Where windows can be computed in parts, the two share a
// loose factor, and parts exchange halos. Where a window is one row (kernel 1, stride 1), the factor just passes.
struct Spatial {
  std::string input, result;
};

Spatial spatial_letters(const Call& call) {
  const Stencil stencil = *stencil_of(call);
  Spatial letters;
  for (size_t i = 0; i < spatial_dims(call); ++i) {
    const char in = static_cast<char>('p' + static_cast<char>(i)), out = static_cast<char>('v' + static_cast<char>(i));
    const Windows windows = windows_of(call, stencil, i);
    const bool apart = windows.identity() || windows.divisible();
    const std::string shared = std::string{in} + (windows.identity() ? "" : "~");
    letters.input += apart ? shared : std::string{in, '!'};
    letters.result += apart ? shared : std::string{out, '!'};
  }
  return letters;
}

// ---- the gradients of a convolution --------------------------------------------------------------------------------
using Ints = std::vector<int64_t>;

// The calls that compute the gradients of a convolution_backward
// (grad, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask) -> (dx, dw, db).
struct Gradients {
  Call input;   // dx: a convolution of grad with w, transposed if the forward convolution is not
  Call weight;  // dw: convolution_backward with a mask for dw alone
};

Ints full_list(const Call& call, size_t arg, size_t count, int64_t missing) {
  Ints list = integers(call, arg);
  if (list.empty()) list = {missing};
  if (list.size() == 1) list.assign(count, list[0]);
  return list;
}

// The output_padding with which the convolution that computes dx gives it the size of x; nothing where none does.
std::optional<Ints> output_padding(const Call& call, const Stencil& stencil, bool transposed) {
  Ints more;
  for (size_t s = 0; s < spatial_dims(call); ++s) {
    const Windows windows = windows_of(call, stencil, s);
    const int64_t reached = (windows.points - 1) * windows.stride - 2 * windows.padding + windows.span();
    more.push_back(transposed ? 0 : windows.field - reached);
    if (windows.field - reached >= windows.stride || windows.field < reached) return std::nullopt;
  }
  return more;
}

std::optional<Gradients> gradients_of(const Call& call) {
  const bool transposed = boolean(call, 7, false);
  const auto more = output_padding(call, *stencil_of(call), transposed);
  if (!more || is_complex(call.inputs[0].dtype)) return std::nullopt;
  const size_t count = more->size();
  Gradients parts;
  parts.weight = call;
  parts.weight.outputs[0] = parts.weight.outputs[2] = {DType::unknown, {}};
  parts.weight.args.at(10) = std::vector<bool>{false, true, false};
  parts.input.op = "aten.convolution";
  parts.input.args = {TensorArg{0},
                      TensorArg{1},
                      std::monostate{},
                      full_list(call, 4, count, 1),
                      full_list(call, 5, count, 0),
                      full_list(call, 6, count, 1),
                      !transposed,
                      *more,
                      integer(call, 9, 1)};
  parts.input.inputs = {call.inputs[0], call.inputs[2]};
  parts.input.outputs = {call.outputs[0]};
  return parts;
}

// Emits the node without the gradient of the bias, which the caller adds to the results.
Values bias_gradient_apart(OpBuilder& maths, const Node& node) {
  std::vector<Arg> args = maths.call().args;
  std::vector<TensorType> types = maths.call().outputs;
  args.at(10) = std::vector<bool>{produced(types[0]), produced(types[1]), false};
  types[2].dtype = DType::unknown;
  const ValueId made = maths.emit(maths.call().op, std::move(args), node.inputs, types);
  return {made, made + 1, kNone};
}

ValueId bias_gradient(OpBuilder& maths) {
  const ValueId grad = maths.input(0);
  std::vector<int64_t> dims(maths.shape(grad).size());
  std::iota(dims.begin(), dims.end(), 0);
  dims.erase(dims.begin() + 1);
  return maths.sum(grad, dims, false, maths.output(2).dtype);
}

// Emits the convolution without bias, and then adds the bias.
Values add_bias_after(OpBuilder& maths) {
  std::vector<Arg> args = maths.call().args;
  args.at(2) = std::monostate{};
  const ValueId product =
      maths.emit(maths.call().op, std::move(args), {maths.input(0), maths.input(1)}, {maths.output(0)});
  Shape bias(maths.output(0).shape.size(), 1);
  bias.at(1) = maths.output(0).shape.at(1);
  return {maths.add(product, maths.view(maths.input(2), std::move(bias)))};
}

// Each point, of each channel, meets the kernel in the channels of its group. `points`: of the side that has a window
// each.
double flops_of(const TensorType& points, const TensorType& weight) {
  const auto channels = static_cast<double>(std::max<int64_t>(weight.shape.at(0), 1));
  return 2 * static_cast<double>(numel(points.shape)) * static_cast<double>(numel(weight.shape)) / channels;
}

}  // namespace

// convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups)
OpRule convolution(const Call& call) {
  const size_t spatial = call.inputs[0].shape.size() - 2;
  const bool transposed = boolean(call, 6, false), bias = operand(call, 2) >= 0;
  const bool grouped = integer(call, 8, 1) != 1;
  const std::string in = grouped ? "I!" : bias ? "c+" : "c", out = grouped ? "O!" : "o";
  // With groups, channels are not cut: one dim of the weight counts the channels of a group only.
  const std::string weight = grouped ? (transposed ? "I!P!" : "O!P!") : (transposed ? "co" : "oc");
  const Spatial places = spatial_letters(call);
  Letters letters{{"n" + in + places.input, weight + dims(spatial, 's', '!')}, {"n" + out + places.result}};
  if (bias) letters.inputs.push_back(out);
  OpRule rule = from_letters(call, letters);
  if (!bias) rule.linearity = Linearity::each;
  rule.product = true;
  set_all_flops(rule, flops_of(transposed ? call.inputs[0] : call.outputs[0], call.inputs[1]));
  return rule;
}

// convolution_backward, with the arguments listed at Gradients.
OpRule convolution_backward(const Call& call) {
  const size_t spatial = call.inputs[0].shape.size() - 2;
  const bool transposed = boolean(call, 7, false), grouped = integer(call, 9, 1) != 1;
  // The gradient of the bias has no input channels, so where those are cut it is computed by a node of its own.
  const std::string in = grouped ? "I!" : produced(call.outputs[2]) ? "c^" : "c.", out = grouped ? "O!" : "o";
  const std::string weight =
      (grouped ? (transposed ? "I!P!" : "O!P!") : (transposed ? "co" : "oc")) + dims(spatial, 's', '!');
  const Spatial places = spatial_letters(call);
  const std::string x = "n" + in + places.input;
  OpRule rule = from_letters(call, {{"n" + out + places.result, x, weight}, {x, weight, out}});
  rule.product = true;
  const int gradients = produced(call.outputs[0]) + produced(call.outputs[1]);
  set_all_flops(rule, gradients * flops_of(call.inputs[transposed ? 1 : 0], call.inputs[2]));
  return rule;
}

// With a bias, cut input channels end in a sum over devices, to which the bias is added afterwards.
Values expand_convolution(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const bool bias = operand(maths.call(), 2) >= 0;
  const std::vector<CutDim> cuts = cut_dims(maths, maths.call(), node.inputs);
  if (bias && (cuts.empty() || maths.is_cut(node.inputs[0], 1))) return add_bias_after(maths);
  return expand_stencil(builder, node);
}

Values expand_convolution_backward(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const std::vector<CutDim> cuts = cut_dims(maths, maths.call(), node.inputs);
  const auto gradients = gradients_of(maths.call());
  const bool biased = produced(maths.output(2));
  Values results(3, kNone);
  if (cuts.empty() || !gradients) {
    results = biased ? bias_gradient_apart(maths, node) : unchanged(maths, node);
  } else {
    if (produced(maths.output(0)))
      results[0] = in_parts(maths, gradients->input, {node.inputs[0], node.inputs[2]}, cuts)[0];
    if (produced(maths.output(1))) results[1] = in_parts(maths, gradients->weight, node.inputs, cuts)[1];
  }
  if (biased) results[2] = bias_gradient(maths);
  return results;
}

// Sets bias_sizes: the local bias has as many elements as the local gradient has channels.
void bias_size(const Call&, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  if (std::holds_alternative<std::vector<int64_t>>(args.at(3)))
    args[3] = std::vector<int64_t>{inputs.at(0).at(1).extent};
}

}  // namespace spmdx::rules
