// SPDX-License-Identifier: Apache-2.0
// Stencils over cut dims: each part takes the rows it needs of its neighbours, and computes its own rows whole.
#include <numeric>

#include "graph/rows.h"
#include "rules/blocks.h"
#include "rules/families.h"
#include "rules/stencil.h"

namespace spmdx {
namespace {

struct CutDim {
  size_t spatial;
  int64_t parts;
};

// The spatial dims that some operand has cut.
std::vector<CutDim> cut_dims(Maths& maths, const Call& call, const std::vector<ValueId>& inputs) {
  const Stencil stencil = *stencil_of(call);
  const size_t spatial = spatial_dims(call), rank = call.inputs.at(0).shape.size();
  std::vector<CutDim> cuts;
  for (size_t s = 0; s < spatial; ++s) {
    const Windows windows = windows_of(call, stencil, s);
    if (!windows.divisible() || windows.identity()) continue;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (stencil.operand(i) == Side::none || !maths.is_cut(inputs[i], rank - spatial + s)) continue;
      cuts.push_back({s, maths.parts(inputs[i], rank - spatial + s)});
      break;
    }
  }
  return cuts;
}

ValueId with_halo(Maths& maths, ValueId value, size_t dim, const Windows& windows, bool owns_points, int64_t parts) {
  std::vector<int64_t> starts, lengths;
  for (int64_t i = 0; i < parts; ++i) {
    const Range rows = needed(windows, owns_points, parts, i);
    starts.push_back(rows.start);
    lengths.push_back(rows.extent);
  }
  TensorType type{maths.dtype(value), maths.shape(value)};
  type.shape.at(dim) = parts * needed_extent(windows, owns_points, parts);
  return maths.emit(std::string(kHalo), {TensorArg{0}, static_cast<int64_t>(dim), starts, lengths}, {value}, {type});
}

// The call as a spmdx.stencil, on operands of which those that the parts do not own have halos.
Values in_parts(Maths& maths, const Call& call, std::vector<ValueId> inputs, const std::vector<CutDim>& cuts) {
  const Stencil stencil = *stencil_of(call);
  const size_t spatial = spatial_dims(call), rank = call.inputs.at(0).shape.size();
  const bool owns_points = stencil.owns_points();
  std::vector<int64_t> dims, parts, field, points;
  for (const CutDim& cut : cuts) {
    const Windows windows = windows_of(call, stencil, cut.spatial);
    dims.push_back(static_cast<int64_t>(cut.spatial));
    parts.push_back(cut.parts);
    field.push_back(windows.field);
    points.push_back(windows.points);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Side side = stencil.operand(i);
      if (side != Side::none && on_points(side) != owns_points)
        inputs[i] = with_halo(maths, inputs[i], rank - spatial + cut.spatial, windows, owns_points, cut.parts);
    }
  }
  std::vector<Arg> args = {call.op, dims, parts, std::vector<int64_t>(dims.size(), 0), field, points};
  args.insert(args.end(), call.args.begin(), call.args.end());
  const ValueId made = maths.emit("spmdx.stencil", std::move(args), std::move(inputs), call.outputs);
  Values results(call.outputs.size());
  std::iota(results.begin(), results.end(), made);
  return results;
}

// ---- the gradients of a convolution --------------------------------------------------------------------------------

using Ints = std::vector<int64_t>;

// (grad, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask) → dx, dw, db
struct Gradients {
  Call input;   // a convolution of the gradient, transposed where the forward one is not
  Call weight;  // the same op for dw alone
};

Ints full_list(const Call& call, size_t arg, size_t count, int64_t missing) {
  Ints list = integers(call, arg);
  if (list.empty()) list = {missing};
  if (list.size() == 1) list.assign(count, list[0]);
  return list;
}

// What a convolution has to be told to give dx its size; nothing where it cannot.
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

// The gradients of input and weight, and that of the bias by itself.
Values bias_gradient_apart(Maths& maths, const Node& node) {
  std::vector<Arg> args = maths.call().args;
  std::vector<TensorType> types = maths.call().outputs;
  args.at(10) = std::vector<bool>{produced(types[0]), produced(types[1]), false};
  types[2].dtype = DType::unknown;
  const ValueId made = maths.emit(maths.call().op, std::move(args), node.inputs, types);
  return {made, made + 1, kNone};
}

ValueId bias_gradient(Maths& maths) {
  const ValueId grad = maths.input(0);
  std::vector<int64_t> dims(maths.shape(grad).size());
  std::iota(dims.begin(), dims.end(), 0);
  dims.erase(dims.begin() + 1);
  return maths.sum(grad, dims, false, maths.output(2).dtype);
}

}  // namespace

Values expand_stencil(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const std::vector<CutDim> cuts = cut_dims(maths, maths.call(), node.inputs);
  return cuts.empty() ? unchanged(maths, node) : in_parts(maths, maths.call(), node.inputs, cuts);
}

// A bias is added after sums over cut channels.
Values expand_convolution(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const bool bias = operand(maths.call(), 2) >= 0;
  const std::vector<CutDim> cuts = cut_dims(maths, maths.call(), node.inputs);
  if (bias && (cuts.empty() || maths.is_cut(node.inputs[0], 1))) return add_bias_after(maths);
  return expand_stencil(builder, node);
}

Values expand_convolution_backward(Builder& builder, const Node& node) {
  Maths maths(builder, node);
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

}  // namespace spmdx
