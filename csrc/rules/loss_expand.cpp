// SPDX-License-Identifier: Apache-2.0
// Expansions of losses: per-element losses, then a sum divided by the global count.
#include <algorithm>

#include "base/error.h"
#include "rules/composite.h"
#include "rules/families.h"
#include "rules/maths.h"

namespace spmdx {
namespace {

enum : int64_t { kNoReduction = 0, kMean = 1 };

// Where a pointwise loss has its reduction; the backward op has it one later.
size_t reduction_arg(const Call& call, bool backward) {
  const std::string_view base = base_name(call.op);
  size_t arg = 2;
  if (base.starts_with("aten.binary_cross_entropy_with_logits"))
    arg = 4;
  else if (base.starts_with("aten.binary_cross_entropy"))
    arg = 3;
  return arg + (backward ? 1 : 0);
}

// The node again, without reduction, with the given operands; its parameters are all kept.
ValueId unreduced(Maths& maths, const Node& node, size_t arg, Values inputs, const TensorType& out) {
  std::vector<Arg> args = maths.call().args;
  if (args.size() <= arg) args.resize(arg + 1);
  args[arg] = int64_t{kNoReduction};
  return maths.emit(maths.call().op, std::move(args), std::move(inputs), {out},
                    Scalar{{}, maths.call().num_params, node.param});
}

std::vector<int64_t> all_dims(const Shape& shape) {
  std::vector<int64_t> dims;
  for (size_t d = 0; d < shape.size(); ++d) dims.push_back(static_cast<int64_t>(d));
  return dims;
}

// For nll_loss: scores [n, c, …], targets [n, …], with one weight a class or none.
struct Classes {
  ValueId target, valid;
  int weight = -1;  // operand
  int64_t count = 1;
  Shape column;  // [1, c, 1 …]
  Shape row;     // [n, 1, …]
};

Classes classes_of(Maths& maths, size_t scores, size_t target, size_t weight_arg, size_t ignore_arg) {
  Classes classes{};
  const Shape shape = maths.shape(maths.input(scores));
  classes.target = maths.input(target);
  classes.valid = maths.compare("aten.ne.Scalar", classes.target, argument(maths.call(), ignore_arg));
  classes.weight = operand(maths.call(), weight_arg);
  classes.count = shape.at(1);
  classes.column.assign(shape.size(), 1);
  classes.column[1] = shape[1];
  classes.row = shape;
  classes.row[1] = 1;
  return classes;
}

// [n, c, …]: whether this is the class the row is asked for; never where the target is ignored.
ValueId hits(Maths& maths, const Classes& classes) {
  const ValueId target = maths.where_or(classes.valid, classes.target, int64_t{-1});
  const ValueId iota = maths.iota(classes.count, maths.dtype(target));
  return maths.equal(maths.view(iota, classes.column), maths.view(target, classes.row));
}

// [n, …]: the weight of each row's class, 0 where it is ignored.
ValueId row_weights(Maths& maths, const Classes& classes, DType dtype) {
  if (classes.weight < 0) return maths.cast(classes.valid, dtype);
  const ValueId weight = maths.cast(maths.input(static_cast<size_t>(classes.weight)), dtype);
  const ValueId safe = maths.where_or(classes.valid, classes.target, int64_t{0});
  const Shape rows = maths.shape(safe);
  const ValueId flat = maths.view(safe, {numel(rows)});
  const ValueId picked = maths.emit("aten.index_select", {TensorArg{0}, int64_t{0}, TensorArg{1}}, {weight, flat},
                                    {{dtype, {numel(rows)}}});
  return maths.where_or(classes.valid, maths.view(picked, rows), 0.0);
}

// Scores times class weights, f32 at least.
ValueId weighted(Maths& maths, const Classes& classes, ValueId scores) {
  if (classes.weight < 0) return scores;
  const ValueId weight = maths.view(maths.input(static_cast<size_t>(classes.weight)), classes.column);
  return maths.mul(scores, maths.cast(weight, maths.dtype(scores)));
}

// Classes are cut: every device finds the targets among its own classes, one row-sized sum remains.
Values pick_by_comparison(Maths& maths, const Classes& classes) {
  const ValueId scores = weighted(maths, classes, maths.wide(maths.input(0)));
  const ValueId picked = maths.where_or(hits(maths, classes), scores, 0.0);
  const ValueId rows = maths.unary("aten.neg", maths.sum(picked, {1}, false, maths.dtype(scores)));
  const TensorType total = maths.output(1);
  return {maths.cast(rows, maths.output(0).dtype), maths.full(total.shape, 0.0, total.dtype)};
}

}  // namespace

Values expand_loss(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const TensorType out = maths.output(0);
  Shape shape;
  for (const TensorType& type : maths.call().inputs) shape = broadcast(shape, type.shape);
  const size_t arg = reduction_arg(maths.call(), false);
  const int64_t reduction = integer(maths.call(), arg, kMean);
  const ValueId each = unreduced(maths, node, arg, node.inputs, {out.dtype, shape});
  ValueId total = maths.sum(each, all_dims(shape), false, wide(out.dtype));
  if (reduction == kMean) total = maths.div(total, static_cast<double>(numel(shape)));
  return {maths.cast(total, out.dtype)};
}

// A mean divides by the local count in a kernel: divide the incoming gradient by the global one instead.
Values expand_loss_backward(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const TensorType out = maths.output(0);
  const double count = static_cast<double>(std::max<int64_t>(numel(out.shape), 1));
  Values inputs = node.inputs;
  inputs.at(0) = maths.expand(maths.div(inputs.at(0), count), out.shape);
  return {unreduced(maths, node, reduction_arg(maths.call(), true), std::move(inputs), out)};
}

// (self, target, weight, reduction, ignore_index) -> (output, total_weight)
Values expand_nll_loss(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const int64_t reduction = integer(maths.call(), 3, kMean);
  const Classes classes = classes_of(maths, 0, 1, 2, 4);
  if (reduction == kNoReduction) return pick_by_comparison(maths, classes);
  const TensorType out = maths.output(0), weight_type = maths.output(1);
  const Shape rows_shape = maths.shape(classes.target);
  std::vector<Arg> args = maths.call().args;
  args.at(3) = int64_t{kNoReduction};
  const ValueId rows =
      maths.emit(maths.call().op, std::move(args), node.inputs, {{out.dtype, rows_shape}, {weight_type.dtype, {}}});
  const DType acc = wide(out.dtype);
  const std::vector<int64_t> dims = all_dims(rows_shape);
  const ValueId weight = maths.sum(row_weights(maths, classes, acc), dims, false, acc);
  ValueId total = maths.sum(rows, dims, false, acc);
  if (reduction == kMean) total = maths.div(total, weight);
  return {maths.cast(total, out.dtype), maths.view(maths.cast(weight, weight_type.dtype), weight_type.shape)};
}

// (grad, self, target, weight, reduction, ignore_index, total_weight): −w·g where a class is the row's own
Values expand_nll_loss_backward(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const Classes classes = classes_of(maths, 1, 2, 3, 5);
  const TensorType out = maths.output(0);
  ValueId grad = maths.unary("aten.neg", maths.wide(maths.input(0)));
  if (integer(maths.call(), 4, kMean) == kMean) {
    const ValueId total = maths.view(maths.wide(node.inputs.back()), {});
    grad = maths.div(grad, total);
  }
  if (!maths.shape(grad).empty()) grad = maths.view(grad, classes.row);
  const ValueId values = maths.expand(weighted(maths, classes, grad), out.shape);
  return {maths.cast(maths.where_or(hits(maths, classes), values, 0.0), out.dtype)};
}

}  // namespace spmdx
