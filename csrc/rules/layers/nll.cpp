// SPDX-License-Identifier: Apache-2.0
// Negative log-likelihoods: the device that holds the class of a row computes the loss of the row; others give 0.
#include "rules/layers/nll.h"

#include <algorithm>

#include "graph/args.h"
#include "rules/build/letters.h"
#include "rules/build/op_builder.h"
#include "rules/layers/losses.h"
#include "rules/tensors/pointwise.h"

namespace spmdx::rules {
namespace {

// Letters of the scores: dim 1 is the class, 'c'; all other dims ('b', and from 'd' on for nll_loss2d) number the rows.
std::string scores(size_t rank, const char* row_mark, const char* class_mark) {
  std::string text;
  for (size_t d = 0; d < rank; ++d)
    text += static_cast<char>('b' + static_cast<char>(d)) + std::string(d == 1 ? class_mark : row_mark);
  return text;
}

// Corrects the cost: the op reads one class of each row, not all classes.
OpRule once_a_row(OpRule rule, const TensorType& scores) {
  rule.flops_per_element = 1 / static_cast<double>(std::max<int64_t>(scores.shape.at(1), 1));
  return rule;
}

std::string rows(size_t rank) {
  std::string text;
  for (size_t d = 0; d < rank; ++d)
    if (d != 1) text += static_cast<char>('b' + static_cast<char>(d));
  return text;
}

// The classes of the rows, whether each counts (b8), and the weights of classes.
struct Classes {
  ValueId target, valid;
  int weight = -1;  // the operand with one weight per class; -1: there is none
};

Classes classes_of(OpBuilder& maths, size_t target, size_t weight_arg, size_t ignore_arg) {
  Classes classes{};
  classes.target = maths.input(target);
  classes.valid = maths.compare("aten.ne.Scalar", classes.target, argument(maths.call(), ignore_arg));
  classes.weight = operand(maths.call(), weight_arg);
  return classes;
}

// For each row `value` (a scalar, or one number per row) times the weight of the row's class; 0 where the row is
// ignored.
ValueId row_values(OpBuilder& maths, const Classes& classes, ValueId value) {
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

// (self, target, weight, reduction, ignore_index) -> (output, total_weight)
OpRule nll_loss(const Call& call) {
  const size_t rank = call.inputs[0].shape.size();
  if (rank < 2) return replicated(call);
  const bool whole = integer(call, 3, kMean) == kNoReduction;
  Letters letters{{scores(rank, whole ? "." : "+", "+"), rows(rank)}, {whole ? rows(rank) : "", ""}};
  if (call.inputs.size() > 2) letters.inputs.push_back("c");
  if (!call.outputs[1].shape.empty()) letters.outputs[1] = "_";
  return once_a_row(from_letters(call, letters), call.inputs[0]);
}

// (grad, self, target, weight, reduction, ignore_index, total_weight) -> dself
OpRule nll_loss_backward(const Call& call) {
  const size_t rank = call.inputs[1].shape.size();
  if (rank < 2) return replicated(call);
  const std::string x = scores(rank, ".", "+");
  Letters letters{{call.inputs[0].shape.empty() ? "" : rows(rank), x, rows(rank)}, {x}};
  if (operand(call, 3) >= 0) letters.inputs.push_back("c");
  letters.inputs.push_back(call.inputs.back().shape.empty() ? "" : "_");
  return from_letters(call, letters);
}

// (scores, target[, weight]) -> (loss of each row, weight of each row)
OpRule nll_rows(const Call& call) {
  const size_t rank = call.inputs[0].shape.size();
  Letters letters{{scores(rank, "", ""), rows(rank)}, {rows(rank), rows(rank)}};
  if (call.inputs.size() > 2) letters.inputs.push_back("c");
  return once_a_row(from_letters(call, letters), call.inputs[0]);
}

// (rows, target, dim, start, count): the result has a new dim, of which the target numbers the element that gets the
// row.
OpRule put_rows(const Call& call) {
  const std::string rows = dims(call.inputs[0].shape.size());
  std::string result = rows;
  result.insert(static_cast<size_t>(integer(call, 2, 0)), "Z");
  return from_letters(call, {{rows, rows}, {result}});
}

// (self, target, weight, reduction, ignore_index) -> (output, total_weight). One sum over devices adds up rows and
// classes, because each row is counted by one device alone.
Values expand_nll_loss(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
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
  // Without weights of classes, the targets alone tell the total weight: the number of rows that are not ignored.
  const Classes known = classes_of(maths, 1, 2, 4);
  const ValueId weight = maths.sum(known.weight < 0 ? maths.cast(known.valid, acc) : rows + 1, dims, false, acc);
  ValueId total = maths.sum(rows, dims, false, acc);
  if (reduction == kMean) total = maths.div(total, weight);
  return {maths.cast(total, out.dtype), maths.view(maths.cast(weight, weight_type.dtype), weight_type.shape)};
}

// (grad, self, target, weight, reduction, ignore_index, total_weight): −weight · grad at the row's class, 0 elsewhere
Values expand_nll_loss_backward(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const Classes classes = classes_of(maths, 2, 3, 5);
  const TensorType out = maths.output(0);
  ValueId grad = maths.unary("aten.neg", maths.wide(maths.input(0)));
  if (integer(maths.call(), 4, kMean) == kMean) grad = maths.div(grad, maths.view(maths.wide(node.inputs.back()), {}));
  const ValueId rows = maths.cast(row_values(maths, classes, grad), out.dtype);
  return {maths.emit("spmdx.put_rows", {TensorArg{0}, TensorArg{1}, int64_t{1}, int64_t{0}, out.shape.at(1)},
                     {rows, classes.target}, {out})};
}

// spmdx.nll_rows(scores, target, weight, ignore_index, start, classes)
void nll_start(const Call&, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  args.at(4) = inputs.at(0).at(1).start;
}

// spmdx.put_rows(rows, target, dim, start, count)
void put_rows_box(const Call&, const Boxes&, const Boxes& outputs, std::vector<Arg>& args) {
  const Range range = outputs.at(0).at(static_cast<size_t>(std::get<int64_t>(args.at(2))));
  args.at(3) = range.start;
  args.at(4) = range.extent;
}

}  // namespace spmdx::rules
