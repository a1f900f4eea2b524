// SPDX-License-Identifier: Apache-2.0
// Expansions of mean, variance, norms and logsumexp: local sums, divided by global counts.
#include <cmath>
#include <limits>

#include "base/error.h"
#include "rules/composite.h"
#include "rules/families.h"
#include "rules/maths.h"

namespace spmdx {
namespace {

struct Reduced {
  std::vector<int64_t> dims;
  bool keepdim = false;
  double count = 1;
};

// Which dims the node reduces; never an empty list, so that it means the same to every op.
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

// The sum of what is neither above nor below the diagonal: both are told by global positions.
Values expand_trace(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const TensorType type = maths.call().inputs.at(0);
  ValueId x = maths.input(0);
  for (const char* op : {"aten.tril", "aten.triu"}) x = maths.emit(op, {TensorArg{0}, int64_t{0}}, {x}, {type});
  return {maths.sum(x, {0, 1}, false, maths.output(0).dtype)};
}

Values expand_mean(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const Reduced by = reduced_by(maths.call(), 1);
  const DType type = maths.output(0).dtype;
  const ValueId total = maths.sum(maths.input(0), by.dims, by.keepdim, wide(type));
  return {maths.cast(maths.div(total, by.count), type)};
}

// Two passes: squared distances from the global mean.
Values expand_var(Builder& builder, const Node& node) {
  Maths maths(builder, node);
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

// (Σ |x|^p)^(1/p), with its limits at 0 and ±∞
Values expand_vector_norm(Builder& builder, const Node& node) {
  Maths maths(builder, node);
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

// log Σ exp(x − max) + max, where an infinite maximum counts as 0 (all −∞ gives −∞, a +∞ gives +∞)
Values expand_logsumexp(Builder& builder, const Node& node) {
  Maths maths(builder, node);
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

}  // namespace spmdx
