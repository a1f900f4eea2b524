// SPDX-License-Identifier: Apache-2.0
// Norms: the mean first, then the variance from distances to it, which keeps more digits than E(x²) − E(x)².
#include "rules/build/norm_maths.h"

#include "base/error.h"
#include "graph/args.h"
#include "rules/build/letters.h"

namespace spmdx::rules {

double count_of(const Shape& shape, const std::vector<int64_t>& dims) {
  double count = 1;
  for (int64_t d : dims) count *= static_cast<double>(shape.at(static_cast<size_t>(d)));
  return count;
}

Normalised normalise(OpBuilder& maths, ValueId x, const std::vector<int64_t>& dims, const Scalar& eps) {
  const DType acc = maths.dtype(x);
  const double count = count_of(maths.shape(x), dims);
  Normalised result{};
  result.mean = maths.div(maths.sum(x, dims, true, acc), count);
  const ValueId distance = maths.sub(x, result.mean);
  result.var = maths.div(maths.sum(maths.mul(distance, distance), dims, true, acc), count);
  result.rstd = maths.unary("aten.rsqrt", maths.add(result.var, eps));
  result.xhat = maths.mul(distance, result.rstd);
  return result;
}

ValueId finish(OpBuilder& maths, ValueId value, size_t output) {
  const TensorType type = maths.output(output);
  return maths.cast(maths.view(value, type.shape), type.dtype);
}

ValueId input_gradient(OpBuilder& maths, ValueId g, ValueId xhat, ValueId rstd, const std::vector<int64_t>& dims) {
  const DType acc = maths.dtype(g);
  const double count = count_of(maths.shape(g), dims);
  const ValueId mean_g = maths.div(maths.sum(g, dims, true, acc), count);
  const ValueId mean_gx = maths.div(maths.sum(maths.mul(g, xhat), dims, true, acc), count);
  return maths.mul(maths.sub(maths.sub(g, mean_g), maths.mul(xhat, mean_gx)), rstd);
}

bool wanted(const OpBuilder& maths, size_t output) { return produced(maths.output(output)); }

ValueId given(OpBuilder& maths, size_t arg, const Shape& shape) {
  const int index = operand(maths.call(), arg);
  internal_check(index >= 0, "a norm without a statistic it needs");
  return maths.view(maths.wide(maths.input(static_cast<size_t>(index))), shape);
}

}  // namespace spmdx::rules
