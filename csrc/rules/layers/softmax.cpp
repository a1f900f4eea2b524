// SPDX-License-Identifier: Apache-2.0
// Softmax: expansions with two reductions over the dim in forward, and one in backward.
#include "rules/layers/softmax.h"

#include <limits>

#include "graph/args.h"
#include "rules/build/letters.h"
#include "rules/build/op_builder.h"
#include "rules/build/simplify_sums.h"
#include "rules/rule/row.h"

namespace spmdx::rules {
namespace {

struct Rows {
  ValueId shifted;  // x − top
  ValueId exp;      // of shifted
  ValueId total;    // the sum of exp over the dim, which is kept
  ValueId top;      // the maximum of x over the dim, which is kept
};

Rows rows_of(OpBuilder& maths, const std::vector<int64_t>& dim) {
  const ValueId x = maths.cast(maths.input(0), wide(maths.output(0).dtype));
  Rows rows{};
  rows.top = maths.extremum("aten.amax", x, dim, true);
  rows.shifted = maths.sub(x, rows.top);
  rows.exp = maths.unary("aten.exp", rows.shifted);
  rows.total = maths.sum(rows.exp, dim, true, maths.dtype(x));
  return rows;
}

}  // namespace

// All operands have one shape.
OpRule softmax(const Call& call) {
  const size_t rank = call.inputs[0].shape.size();
  std::string text = dims(rank);
  if (rank > 0) text.insert(static_cast<size_t>(normal_dim(integer(call, row_of(call).arg, -1), rank)) + 1, "^");
  return from_letters(call, {std::vector<std::string>(call.inputs.size(), text), {text}});
}

Values expand_softmax(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const Rows rows = rows_of(maths, integers(maths.call(), 1));
  ValueId result = maths.div(rows.exp, rows.total);
  if (maths.call().op == "aten._safe_softmax") {
    // A row of which all elements are −∞ has no distribution; _safe_softmax gives zeros.
    const ValueId some = maths.compare("aten.ne.Scalar", rows.top, -std::numeric_limits<double>::infinity());
    result = maths.where_or(some, result, 0.0);
  }
  return {maths.cast(result, maths.output(0).dtype)};
}

Values expand_log_softmax(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const Rows rows = rows_of(maths, integers(maths.call(), 1));
  return {maths.cast(maths.sub(rows.shifted, maths.unary("aten.log", rows.total)), maths.output(0).dtype)};
}

// (grad, output, dim, input_dtype): y·(g − Σ g·y), with y the output
Values expand_softmax_backward(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const ValueId grad = maths.wide(maths.input(0)), y = maths.wide(maths.input(1));
  const ValueId product = maths.mul(grad, y);
  const ValueId total = maths.sum(product, integers(maths.call(), 2), true, maths.dtype(product));
  return {maths.cast(maths.sub(product, maths.mul(y, total)), maths.output(0).dtype)};
}

// g − exp(y)·Σ g, with y the output. If g is the gradient of nll_loss, it has one element per row, so Σ g is known
// without a reduction.
Values expand_log_softmax_backward(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const ValueId grad = maths.wide(maths.input(0)), y = maths.wide(maths.input(1));
  const std::optional<ValueId> known = known_sum(maths, maths.input(0), integer(maths.call(), 2, -1));
  const ValueId total = known ? *known : maths.sum(grad, integers(maths.call(), 2), true, maths.dtype(grad));
  return {maths.cast(maths.sub(grad, maths.mul(maths.unary("aten.exp", y), total)), maths.output(0).dtype)};
}

}  // namespace spmdx::rules
