// SPDX-License-Identifier: Apache-2.0
// Reductions: letters of the reduced dims, and expansions; a mean is a sum divided by the global count.
#include "rules/tensors/reductions.h"

#include <cmath>
#include <limits>

#include "graph/args.h"
#include "rules/build/fits.h"
#include "rules/build/letters.h"
#include "rules/build/op_builder.h"
#include "rules/rule/row.h"
#include "rules/tensors/pointwise.h"

namespace spmdx::rules {

OpRule reduce(const Call& call, size_t arg, Reduction reduction, char mark) {
  const size_t rank = call.inputs[0].shape.size();
  const std::vector<bool> acted = acted_dims(call, arg, rank);
  const bool keepdim = rank > 0 && call.outputs[0].shape.size() == rank;
  std::string in, out;
  for (size_t d = 0; d < rank; ++d) {
    const char letter = static_cast<char>('a' + static_cast<char>(d));
    in += letter;
    if (acted[d] && mark) in += mark;
    if (!acted[d])
      out += letter;
    else if (keepdim)
      out += '_';
    fits(!acted[d] || !keepdim || call.outputs[0].shape[d] == 1, "a reduced dim is left in " + call.op);
  }
  return from_letters(call, {{in}, std::vector<std::string>(call.outputs.size(), out)}, reduction);
}

OpRule reduce_sum(const Call& call) { return reduce(call, 1, Reduction::sum, 0); }

OpRule reduce_max(const Call& call) { return reduce(call, 1, Reduction::max, 0); }

OpRule reduce_min(const Call& call) { return reduce(call, 1, Reduction::min, 0); }

OpRule reduce_prod(const Call& call) { return reduce(call, 1, Reduction::prod, 0); }

OpRule reduce_any(const Call& call) { return reduce(call, 1, Reduction::any, 0); }

OpRule reduce_all(const Call& call) { return reduce(call, 1, Reduction::all, 0); }

OpRule reduce_whole(const Call& call) { return reduce(call, row_of(call).arg, Reduction::none, '!'); }

OpRule reduce_mean(const Call& call) { return reduce(call, 1, Reduction::sum, '+'); }

OpRule reduce_rows(const Call& call) {
  return reduce(call, 1, Reduction::sum, is_complex(call.inputs.at(0).dtype) ? '!' : '^');
}

// vector_norm(x, ord, dim, keepdim, dtype): the expansion must know the order.
OpRule vector_norm(const Call& call) {
  const Arg& order = argument(call, 1);
  const bool known = std::holds_alternative<double>(order) || std::holds_alternative<int64_t>(order) ||
                     std::holds_alternative<std::monostate>(order);
  return reduce(call, 2, Reduction::sum, known && !is_complex(call.inputs[0].dtype) ? '+' : '!');
}

// histc(x, bins, min, max): min = max means the range of the elements of x, which takes the whole of x.
OpRule histc(const Call& call) {
  const bool given = real(call, 2, 0) != real(call, 3, 0);
  return from_letters(call, {{dims(call.inputs[0].shape.size(), 'a', given ? 0 : '!')}, {"Z!"}});
}

namespace {

// (rows, …): counts of rows on different devices add up, densities do not. Bins and edges may not be cut.
OpRule histogram(const Call& call, int weight, size_t density) {
  const std::string row = boolean(call, density, false) ? "*!" : "*";
  Letters letters{{row + "D!"}, {}};
  for (size_t i = 1; i < call.inputs.size(); ++i)
    letters.inputs.push_back(static_cast<int>(i) == weight ? row : dims(1, static_cast<char>('a' + i), '!'));
  for (const TensorType& type : call.outputs) letters.outputs.push_back(dims(type.shape.size(), 'M', '!'));
  return from_letters(call, letters);
}

}  // namespace

// (x, bins, range, weight, density): without a range, it is the range of all rows, which takes the whole of x.
OpRule histogram_counts(const Call& call) {
  const bool given = !std::holds_alternative<std::monostate>(argument(call, 2));
  return given ? histogram(call, operand(call, 3), 4) : replicated(call);
}

// (x, edges, weight, density)
OpRule histogram_edges(const Call& call) { return histogram(call, operand(call, 2), 3); }

namespace {

struct Reduced {
  std::vector<int64_t> dims;
  bool keepdim = false;
  double count = 1;
};

// The dims that the node reduces, listed even if they are all: ops differ in what an empty list means.
Reduced reduced_by(const Call& call, size_t arg) {
  const Shape& shape = call.inputs.at(0).shape;
  const std::vector<bool> acted = acted_dims(call, arg, shape.size());
  Reduced result;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!acted[d]) continue;
    result.dims.push_back(static_cast<int64_t>(d));
    result.count *= static_cast<double>(shape[d]);
  }
  result.keepdim = !shape.empty() && call.outputs.at(0).shape.size() == shape.size();
  return result;
}

double correction_of(const Call& call) {
  if (call.op.ends_with(".correction")) return real(call, 2, 1);
  const size_t unbiased = call.op.ends_with(".dim") ? 2 : 1;
  return boolean(call, unbiased, true) ? 1 : 0;
}

}  // namespace

// The sum of what tril and triu leave: the diagonal. Both can be localised, so x may be cut.
Values expand_trace(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const TensorType type = maths.call().inputs.at(0);
  ValueId x = maths.input(0);
  for (const char* op : {"aten.tril", "aten.triu"}) x = maths.emit(op, {TensorArg{0}, int64_t{0}}, {x}, {type});
  return {maths.sum(x, {0, 1}, false, maths.output(0).dtype)};
}

Values expand_mean(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const Reduced by = reduced_by(maths.call(), 1);
  const DType type = maths.output(0).dtype;
  const ValueId total = maths.sum(maths.input(0), by.dims, by.keepdim, wide(type));
  return {maths.cast(maths.div(total, by.count), type)};
}

// Two passes: first the global mean, then the squared distances from it.
Values expand_var(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const Reduced by = reduced_by(maths.call(), 1);
  const DType type = maths.output(0).dtype;
  const ValueId x = maths.wide(maths.input(0));
  const DType acc = maths.dtype(x);
  const ValueId mean = maths.div(maths.sum(x, by.dims, true, acc), by.count);
  const ValueId distance = maths.sub(x, mean);
  const ValueId squares = maths.sum(maths.mul(distance, distance), by.dims, by.keepdim, acc);
  ValueId result = maths.div(squares, std::max(0.0, by.count - correction_of(maths.call())));
  if (base_name(maths.call().op).starts_with("aten.std")) result = maths.unary("aten.sqrt", result);
  Values results = {maths.cast(result, type)};
  if (maths.call().outputs.size() > 1)
    results.push_back(maths.cast(maths.view(mean, maths.output(1).shape), maths.output(1).dtype));
  return results;
}

// (Σ |x|^p)^(1/p); p = 0 counts the elements that are not 0, p = ±∞ gives the largest or smallest |x|.
Values expand_vector_norm(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const Reduced by = reduced_by(maths.call(), 2);
  const TensorType& out = maths.output(0);
  const double p = real(maths.call(), 1, 2);
  const ValueId x = maths.cast(maths.input(0), wide(out.dtype));
  const DType acc = maths.dtype(x);
  auto total = [&](ValueId terms) { return maths.sum(terms, by.dims, by.keepdim, acc); };
  ValueId result;
  if (p == 2) {
    result = maths.unary("aten.sqrt", total(maths.mul(x, x)));
  } else if (std::isinf(p)) {
    result = maths.extremum(p > 0 ? "aten.amax" : "aten.amin", maths.unary("aten.abs", x), by.dims, by.keepdim);
  } else if (p == 0) {
    result = total(maths.cast(maths.compare("aten.ne.Scalar", x, int64_t{0}), acc));
  } else if (p == 1) {
    result = total(maths.unary("aten.abs", x));
  } else {
    result = maths.pow(total(maths.pow(maths.unary("aten.abs", x), Scalar{p})), Scalar{1 / p});
  }
  return {maths.cast(result, out.dtype)};
}

// log Σ exp(x − max) + max. An infinite max is replaced by 0, so that x − max is never NaN.
Values expand_logsumexp(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const Reduced by = reduced_by(maths.call(), 1);
  const TensorType& out = maths.output(0);
  const ValueId x = maths.cast(maths.input(0), wide(out.dtype));
  const DType acc = maths.dtype(x);
  const ValueId top = maths.extremum("aten.amax", x, by.dims, true);
  const ValueId finite =
      maths.compare("aten.ne.Scalar", maths.unary("aten.abs", top), std::numeric_limits<double>::infinity());
  const ValueId shift = maths.where_or(finite, top, 0.0);
  const ValueId rest =
      maths.unary("aten.log", maths.sum(maths.unary("aten.exp", maths.sub(x, shift)), by.dims, true, acc));
  return {maths.cast(maths.view(maths.add(rest, shift), out.shape), out.dtype)};
}

}  // namespace spmdx::rules
