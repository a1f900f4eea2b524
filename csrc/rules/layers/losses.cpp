// SPDX-License-Identifier: Apache-2.0
// Losses: rules by the kind of reduction, and expansions of means.
#include "rules/layers/losses.h"

#include <algorithm>

#include "graph/args.h"
#include "rules/build/letters.h"
#include "rules/build/op_builder.h"
#include "rules/rule/row.h"
#include "rules/tensors/pointwise.h"

namespace spmdx::rules {
namespace {

int64_t reduction_of(const Call& call) { return integer(call, row_of(call).arg, kMean); }

// Letters of an operand of a margin loss: rows are 'n', and classes, which the op looks at together, may not be cut.
std::string of_rows(const TensorType& type, const char* row_mark) {
  if (type.shape.size() == 2) return "n" + std::string(row_mark) + "C!";
  return type.shape.empty() ? "" : "n";
}

// Whether the loss without reduction has one number per row, not one per element.
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

// Emits the node's op without reduction on the given operands, with the node's parameters of the plan.
ValueId unreduced(OpBuilder& maths, const Node& node, size_t arg, Values inputs, std::vector<TensorType> outputs) {
  std::vector<Arg> args = maths.call().args;
  if (args.size() <= arg) args.resize(arg + 1);
  args[arg] = int64_t{kNoReduction};
  return maths.emit(maths.call().op, std::move(args), std::move(inputs), std::move(outputs),
                    Scalar{{}, maths.call().num_params, node.param});
}

}  // namespace

OpRule loss(const Call& call) {
  const int64_t reduction = reduction_of(call);
  if (reduction == kNoReduction) return pointwise(call);
  const char* text = reduction == kMean ? "*+" : "*";
  return from_letters(call, {std::vector<std::string>(call.inputs.size(), text), {""}});
}

// (grad, self, target, …): grad is a scalar if the loss is reduced. Of a mean all dims are composite, because the
// kernel would divide by the local count.
OpRule loss_backward(const Call& call) {
  const char* text = reduction_of(call) == kMean ? "*^" : "*";
  Letters letters{std::vector<std::string>(call.inputs.size(), text), {text}};
  if (call.inputs[0].shape.empty()) letters.inputs[0] = "";
  return from_letters(call, letters);
}

// (self, target[, weight], …, reduction) -> (output[, is_target]). A weight has one number per class.
OpRule margin_loss(const Call& call) {
  if (call.inputs[0].shape.size() != 2) return replicated(call);
  const bool each = reduction_of(call) == kNoReduction;
  Letters letters;
  for (const TensorType& type : call.inputs) letters.inputs.push_back(of_rows(type, each ? "" : "+"));
  if (call.inputs.size() > 2) letters.inputs[2] = "C!";
  for (const TensorType& type : call.outputs) letters.outputs.push_back(of_rows(type, ""));
  return from_letters(call, letters);
}

// (grad, self, target, …, reduction, …) -> dself. Of a mean the rows are composite, because the kernel would divide by
// the local count. A weight has one number per class.
OpRule margin_loss_backward(const Call& call) {
  if (call.inputs[1].shape.size() != 2) return replicated(call);
  const char* mark = reduction_of(call) == kMean ? "^" : ".";
  Letters letters;
  for (const TensorType& type : call.inputs) letters.inputs.push_back(of_rows(type, mark));
  if (const int weight = operand(call, 5); weight >= 0) letters.inputs.at(static_cast<size_t>(weight)) = "C!";
  return from_letters(call, {letters.inputs, {"nC!"}});
}

Values expand_loss(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
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

// Divides the gradient of the loss by the global count, and runs the op without reduction.
Values expand_loss_backward(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const TensorType out = maths.output(0);
  const Shape shape = unreduced_shape(maths.call(), out.shape);
  const double count = static_cast<double>(std::max<int64_t>(numel(shape), 1));
  Values inputs = node.inputs;
  inputs.at(0) = maths.expand(maths.div(inputs.at(0), count), shape);
  return {unreduced(maths, node, row_of(maths.call()).arg, std::move(inputs), {out})};
}

}  // namespace spmdx::rules
