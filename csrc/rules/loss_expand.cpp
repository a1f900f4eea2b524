// SPDX-License-Identifier: Apache-2.0
// Expansions of losses: per-element losses, then a sum divided by the global count.
#include <algorithm>

#include "base/error.h"
#include "rules/composite.h"
#include "rules/families.h"
#include "rules/maths.h"
#include "rules/row.h"

namespace spmdx {
namespace {

enum : int64_t { kNoReduction = 0, kMean = 1 };

// What a loss is without its reduction: one number an element, or one a row where classes are looked at together.
bool is_of_rows(const Call& call) {
  const auto family = row_of(call).family;
  return family == margin_loss || family == margin_loss_backward;
}

Shape unreduced_shape(const Call& call, const Shape& elements) {
  return is_of_rows(call) ? Shape{elements.at(0)} : elements;
}

Shape elements_of(const Call& call) {
  if (is_of_rows(call)) return call.inputs.at(0).shape;
  Shape shape;
  for (const TensorType& type : call.inputs) shape = broadcast(shape, type.shape);
  return shape;
}

// The node again, without reduction, with the given operands; its parameters are all kept.
ValueId unreduced(Maths& maths, const Node& node, size_t arg, Values inputs, std::vector<TensorType> outputs) {
  std::vector<Arg> args = maths.call().args;
  if (args.size() <= arg) args.resize(arg + 1);
  args[arg] = int64_t{kNoReduction};
  return maths.emit(maths.call().op, std::move(args), std::move(inputs), std::move(outputs),
                    Scalar{{}, maths.call().num_params, node.param});
}

std::vector<int64_t> all_dims(const Shape& shape) {
  std::vector<int64_t> dims;
  for (size_t d = 0; d < shape.size(); ++d) dims.push_back(static_cast<int64_t>(d));
  return dims;
}

// For nll_loss: targets [n, …] with one weight a class or none.
struct Classes {
  ValueId target, valid;
  int weight = -1;  // operand
};

Classes classes_of(Maths& maths, size_t target, size_t weight_arg, size_t ignore_arg) {
  Classes classes{};
  classes.target = maths.input(target);
  classes.valid = maths.compare("aten.ne.Scalar", classes.target, argument(maths.call(), ignore_arg));
  classes.weight = operand(maths.call(), weight_arg);
  return classes;
}

// [n, …]: `value` (a scalar, or one a row) times the weight of the row's class, 0 where the row is ignored.
ValueId row_values(Maths& maths, const Classes& classes, ValueId value) {
  const Shape rows = maths.shape(classes.target);
  if (classes.weight < 0) return maths.where_or(classes.valid, maths.expand(value, rows), 0.0);
  const DType dtype = maths.dtype(value);
  const ValueId weight = maths.cast(maths.input(static_cast<size_t>(classes.weight)), dtype);
  const ValueId safe = maths.where_or(classes.valid, classes.target, int64_t{0});
  const ValueId flat = maths.view(safe, {numel(rows)});
  const ValueId picked = maths.emit("aten.index_select", {TensorArg{0}, int64_t{0}, TensorArg{1}}, {weight, flat},
                                    {{dtype, {numel(rows)}}});
  return maths.where_or(classes.valid, maths.mul(maths.view(picked, rows), value), 0.0);
}

}  // namespace

Values expand_loss(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const TensorType out = maths.output(0);
  const Shape shape = unreduced_shape(maths.call(), elements_of(maths.call()));
  const size_t arg = row_of(maths.call()).arg;
  const int64_t reduction = integer(maths.call(), arg, kMean);
  std::vector<TensorType> outputs = maths.call().outputs;
  outputs[0].shape = shape;
  const ValueId each = unreduced(maths, node, arg, node.inputs, outputs);
  ValueId total = maths.sum(each, all_dims(shape), false, wide(out.dtype));
  if (reduction == kMean) total = maths.div(total, static_cast<double>(numel(shape)));
  Values results{maths.cast(total, out.dtype)};
  for (size_t i = 1; i < outputs.size(); ++i) results.push_back(each + static_cast<ValueId>(i));
  return results;
}

// A mean divides by the local count in a kernel: divide the incoming gradient by the global one instead.
Values expand_loss_backward(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const TensorType out = maths.output(0);
  const Shape shape = unreduced_shape(maths.call(), out.shape);
  const double count = static_cast<double>(std::max<int64_t>(numel(shape), 1));
  Values inputs = node.inputs;
  inputs.at(0) = maths.expand(maths.div(inputs.at(0), count), shape);
  return {unreduced(maths, node, row_of(maths.call()).arg, std::move(inputs), {out})};
}

// (self, target, weight, reduction, ignore_index) -> (output, total_weight). The sums over rows and over classes are
// one: whoever has a row's class adds the row.
Values expand_nll_loss(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const TensorType out = maths.output(0), weight_type = maths.output(1);
  const DType acc = wide(out.dtype);
  const Shape shape = maths.shape(maths.input(1));
  const int64_t classes = maths.shape(maths.input(0)).at(1), reduction = integer(maths.call(), 3, kMean);
  const ValueId rows = maths.emit(
      "spmdx.nll_rows",
      {TensorArg{0}, TensorArg{1}, argument(maths.call(), 2), argument(maths.call(), 4), int64_t{0}, classes},
      node.inputs, {{acc, shape}, {acc, shape}});
  if (reduction == kNoReduction)
    return {maths.cast(rows, out.dtype), maths.full(weight_type.shape, 0.0, weight_type.dtype)};
  const std::vector<int64_t> dims = all_dims(shape);
  // Without class weights the targets alone tell how many rows count.
  const Classes known = classes_of(maths, 1, 2, 4);
  const ValueId weight = maths.sum(known.weight < 0 ? maths.cast(known.valid, acc) : rows + 1, dims, false, acc);
  ValueId total = maths.sum(rows, dims, false, acc);
  if (reduction == kMean) total = maths.div(total, weight);
  return {maths.cast(total, out.dtype), maths.view(maths.cast(weight, weight_type.dtype), weight_type.shape)};
}

// (grad, self, target, weight, reduction, ignore_index, total_weight): −w·g where a class is the row's own
Values expand_nll_loss_backward(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const Classes classes = classes_of(maths, 2, 3, 5);
  const TensorType out = maths.output(0);
  ValueId grad = maths.unary("aten.neg", maths.wide(maths.input(0)));
  if (integer(maths.call(), 4, kMean) == kMean) grad = maths.div(grad, maths.view(maths.wide(node.inputs.back()), {}));
  const ValueId rows = maths.cast(row_values(maths, classes, grad), out.dtype);
  return {maths.emit("spmdx.place", {TensorArg{0}, TensorArg{1}, int64_t{1}, int64_t{0}, out.shape.at(1)},
                     {rows, classes.target}, {out})};
}

}  // namespace spmdx
