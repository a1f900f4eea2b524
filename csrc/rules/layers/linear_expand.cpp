// SPDX-License-Identifier: Apache-2.0
// Expansions into a product that may stay partial, and a bias added once to its sum.
#include "base/error.h"
#include "rules/build/maths.h"
#include "rules/composite.h"
#include "rules/families.h"

namespace spmdx {
namespace {

const char* product_of(std::string_view op) {
  const std::string_view base = base_name(op);
  if (base == "aten.baddbmm") return "aten.bmm";
  return base == "aten.addmv" ? "aten.mv" : "aten.mm";
}

ValueId scaled(Maths& maths, ValueId value, const Scalar& by) {
  return is_number(by.value, 1) ? value : maths.mul(value, by);
}

}  // namespace

// beta·self + alpha·(a @ b)
Values expand_addmm(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const ValueId product = maths.emit(product_of(maths.call().op), {TensorArg{0}, TensorArg{1}},
                                     {maths.input(1), maths.input(2)}, {maths.output(0)});
  const ValueId right = scaled(maths, product, maths.scalar(4));
  const Scalar beta = maths.scalar(3);
  if (is_number(beta.value, 0)) return {right};
  return {maths.add(right, scaled(maths, maths.input(0), beta))};
}

// Of a convolution: the bias is added once.
Values add_bias_after(Maths& maths) {
  std::vector<Arg> args = maths.call().args;
  args.at(2) = std::monostate{};
  const ValueId product =
      maths.emit(maths.call().op, std::move(args), {maths.input(0), maths.input(1)}, {maths.output(0)});
  Shape bias(maths.output(0).shape.size(), 1);
  bias.at(1) = maths.output(0).shape.at(1);
  return {maths.add(product, maths.view(maths.input(2), std::move(bias)))};
}

// Every device looks up the rows it has; all others are zero. The last argument is the number of rows of all.
Values expand_embedding(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  return {maths.emit("spmdx.masked_embedding", {TensorArg{0}, TensorArg{1}, int64_t{0}, maths.shape(maths.input(0))[0]},
                     {maths.input(0), maths.input(1)}, {maths.output(0)})};
}

// Every device adds to the rows it has.
Values expand_embedding_backward(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const int64_t rows = maths.output(0).shape.at(0);
  return {maths.emit("spmdx.embedding_rows",
                     {TensorArg{0}, TensorArg{1}, int64_t{0}, rows, rows, integer(maths.call(), 3, -1),
                      boolean(maths.call(), 4, false)},
                     {maths.input(0), maths.input(1)}, {maths.output(0)})};
}

// One call a tensor, each with its own finding; the largest counts.
Values expand_amp_unscale(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const size_t tensors = maths.call().outputs.size() - 1;
  const ValueId found = maths.input(tensors), scale = maths.input(tensors + 1);
  Values results, findings;
  TensorListArg all;
  for (size_t i = 0; i < tensors; ++i) {
    const ValueId first = maths.emit(maths.call().op, {TensorListArg{{0}}, TensorArg{1}, TensorArg{2}},
                                     {maths.input(i), found, scale}, {maths.output(i), maths.output(tensors)});
    results.push_back(first);
    findings.push_back(first + 1);
    all.inputs.push_back(static_cast<uint32_t>(i));
  }
  TensorType stacked = maths.output(tensors);
  stacked.shape.insert(stacked.shape.begin(), static_cast<int64_t>(tensors));
  const ValueId stack = maths.emit("aten.stack", {all, int64_t{0}}, findings, {stacked});
  results.push_back(maths.extremum("aten.amax", stack, {0}, false));
  return results;
}

}  // namespace spmdx
