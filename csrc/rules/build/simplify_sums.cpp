// SPDX-License-Identifier: Apache-2.0
// Simplified sums: of one value placed in each row, of a value repeated along the dim, and of linear ops on such
// values.
#include "rules/build/simplify_sums.h"

namespace spmdx::rules {
namespace {

constexpr int kMostSteps = 8;

Shape without(Shape shape, size_t dim) {
  shape.at(dim) = 1;
  return shape;
}

bool is_repeated(const Shape& from, const Shape& to, size_t dim) {
  const size_t added = to.size() - from.size();
  return dim < added || from[dim - added] == 1;
}

bool is_plain_sum(const Call& call) {
  const bool plain = call.args.size() < 3 || is_number(call.args[2], 1);
  return call.op == "aten.add.Tensor" && plain && call.inputs[0].shape == call.inputs[1].shape;
}

bool is_linear_unary(const Call& call) {
  if (call.op == "aten.neg") return true;
  return call.op == "aten._to_copy" && is_floating(call.inputs[0].dtype) && is_floating(call.outputs[0].dtype);
}

bool is_known(const OpBuilder& maths, ValueId value, size_t dim, int steps) {
  const Node* node = maths.producer(value);
  if (!node || steps == 0) return false;
  const Call& call = *node->call;
  if (call.op == "spmdx.put_rows") return call.args.at(2) == Arg(static_cast<int64_t>(dim));
  if (call.op == "aten.expand") return is_repeated(call.inputs[0].shape, call.outputs[0].shape, dim);
  if (is_linear_unary(call)) return is_known(maths, node->inputs[0], dim, steps - 1);
  return is_plain_sum(call) && is_known(maths, node->inputs[0], dim, steps - 1) &&
         is_known(maths, node->inputs[1], dim, steps - 1);
}

// REQUIRES: is_known holds for the value.
ValueId sum_of(OpBuilder& maths, ValueId value, size_t dim) {
  const Node node = *maths.producer(value);  // a copy, because appending nodes moves them in memory
  const Call& call = *node.call;
  const Shape shape = call.outputs[0].shape;
  // put_rows places one value in each row, or none where the value is 0; so the sum of a row is that value.
  if (call.op == "spmdx.put_rows") return maths.view(maths.wide(node.inputs[0]), without(shape, dim));
  if (call.op == "aten.expand") {
    const ValueId times = maths.mul(maths.wide(node.inputs[0]), static_cast<double>(shape[dim]));
    return maths.expand(times, without(shape, dim));
  }
  const ValueId first = sum_of(maths, node.inputs[0], dim);
  if (call.op == "aten.neg") return maths.unary("aten.neg", first);
  return is_plain_sum(call) ? maths.add(first, sum_of(maths, node.inputs[1], dim)) : first;
}

}  // namespace

std::optional<ValueId> known_sum(OpBuilder& maths, ValueId value, int64_t dim) {
  const auto rank = static_cast<int64_t>(maths.shape(value).size());
  const auto along = static_cast<size_t>(dim < 0 ? dim + rank : dim);
  if (!is_known(maths, value, along, kMostSteps)) return std::nullopt;
  return sum_of(maths, value, along);
}

}  // namespace spmdx::rules
