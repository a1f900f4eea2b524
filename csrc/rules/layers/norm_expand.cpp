// SPDX-License-Identifier: Apache-2.0
// Expansions of layer_norm and batch_norm: statistics from global sums, in f32 at least.
#include "rules/build/norm_maths.h"
#include "rules/composite.h"
#include "rules/families.h"

namespace spmdx {
namespace {

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> dims;
  for (; begin < end; ++begin) dims.push_back(begin);
  return dims;
}

std::vector<int64_t> all_but_channels(size_t rank) {
  std::vector<int64_t> dims = {0};
  for (size_t d = 2; d < rank; ++d) dims.push_back(static_cast<int64_t>(d));
  return dims;
}

Shape per_channel(const Shape& x) {
  Shape shape(x.size(), 1);
  shape.at(1) = x.at(1);
  return shape;
}

// The sum over leading dims; with none, the value itself.
ValueId sum_over(Maths& maths, ValueId value, const std::vector<int64_t>& dims) {
  return dims.empty() ? value : maths.sum(value, dims, false, maths.dtype(value));
}

}  // namespace

Values expand_layer_norm(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const ValueId x = maths.wide(maths.input(0));
  const auto rank = static_cast<int64_t>(maths.shape(x).size());
  const auto normal = static_cast<int64_t>(integers(maths.call(), 1).size());
  const Normalised stats = normalise(maths, x, range(rank - normal, rank), maths.scalar(4));
  ValueId out = stats.xhat;
  if (int w = operand(maths.call(), 2); w >= 0) out = maths.mul(out, maths.input(static_cast<size_t>(w)));
  if (int b = operand(maths.call(), 3); b >= 0) out = maths.add(out, maths.input(static_cast<size_t>(b)));
  return {finish(maths, out, 0), finish(maths, stats.mean, 1), finish(maths, stats.rstd, 2)};
}

// (grad, x, normalized_shape, mean, rstd, weight, bias, mask)
Values expand_layer_norm_backward(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const ValueId grad = maths.wide(maths.input(0)), x = maths.wide(maths.input(1));
  const auto rank = static_cast<int64_t>(maths.shape(x).size());
  const auto leading = rank - static_cast<int64_t>(integers(maths.call(), 2).size());
  const ValueId rstd = maths.wide(maths.input(3));
  const ValueId xhat = maths.mul(maths.sub(x, maths.wide(maths.input(2))), rstd);
  Values results(3, kNone);
  if (wanted(maths, 0)) {
    const int w = operand(maths.call(), 5);
    const ValueId g = w >= 0 ? maths.mul(grad, maths.input(static_cast<size_t>(w))) : grad;
    results[0] = finish(maths, input_gradient(maths, g, xhat, rstd, range(leading, rank)), 0);
  }
  const std::vector<int64_t> rows = range(0, leading);
  if (wanted(maths, 1)) results[1] = finish(maths, sum_over(maths, maths.mul(grad, xhat), rows), 1);
  if (wanted(maths, 2)) results[2] = finish(maths, sum_over(maths, grad, rows), 2);
  return results;
}

// (x, weight, bias, running_mean, running_var, training, momentum, eps); only training is composite.
Values expand_batch_norm(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const ValueId x = maths.wide(maths.input(0));
  const Shape channels = per_channel(maths.shape(x));
  const std::vector<int64_t> dims = all_but_channels(channels.size());
  const double count = count_of(maths.shape(x), dims);
  const bool keeps = keeps_statistics(maths.call());
  const Normalised stats = normalise(maths, x, dims, maths.scalar(keeps ? 7 : 5));
  ValueId out = stats.xhat;
  if (operand(maths.call(), 1) >= 0) out = maths.mul(out, given(maths, 1, channels));
  if (operand(maths.call(), 2) >= 0) out = maths.add(out, given(maths, 2, channels));
  Values results = {finish(maths, out, 0), finish(maths, stats.mean, 1), finish(maths, stats.rstd, 2)};
  if (!keeps) return results;
  results.resize(5, kNone);
  const Scalar momentum = maths.scalar(6);
  const ValueId unbiased = maths.mul(stats.var, count / (count - 1));
  if (wanted(maths, 3)) results[3] = finish(maths, maths.lerp(given(maths, 3, channels), stats.mean, momentum), 3);
  if (wanted(maths, 4)) results[4] = finish(maths, maths.lerp(given(maths, 4, channels), unbiased, momentum), 4);
  return results;
}

// (grad, x, weight, running_mean, running_var, save_mean, save_invstd, train, eps, mask); only training is composite.
Values expand_batch_norm_backward(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const ValueId grad = maths.wide(maths.input(0)), x = maths.wide(maths.input(1));
  const Shape channels = per_channel(maths.shape(x));
  const std::vector<int64_t> dims = all_but_channels(channels.size());
  const ValueId rstd = given(maths, 6, channels);
  const ValueId xhat = maths.mul(maths.sub(x, given(maths, 5, channels)), rstd);
  Values results(3, kNone);
  if (wanted(maths, 0)) {
    const ValueId dx = input_gradient(maths, grad, xhat, rstd, dims);
    const bool weighted = operand(maths.call(), 2) >= 0;
    results[0] = finish(maths, weighted ? maths.mul(dx, given(maths, 2, channels)) : dx, 0);
  }
  if (wanted(maths, 1)) results[1] = finish(maths, maths.sum(maths.mul(grad, xhat), dims, false, maths.dtype(grad)), 1);
  if (wanted(maths, 2)) results[2] = finish(maths, maths.sum(grad, dims, false, maths.dtype(grad)), 2);
  return results;
}

}  // namespace spmdx
