// SPDX-License-Identifier: Apache-2.0
// Batch norms: letters, and expansions that compute statistics from global sums, at least in f32.
#include "rules/layers/batch_norm.h"

#include "graph/args.h"
#include "rules/build/letters.h"
#include "rules/build/norm_maths.h"

namespace spmdx::rules {
namespace {

// Letters of a tensor: dim 1, the channel, is 'c'; batch and spatial dims have the mark.
std::string channels(size_t rank, char mark) {
  std::string text;
  for (size_t d = 0; d < rank; ++d) {
    if (d == 1)
      text += 'c';
    else
      text += static_cast<char>('p' + static_cast<char>(d));
    if (d != 1 && mark) text += mark;
  }
  return text;
}

// Letters of a tensor with one number per channel; an op may leave such a tensor empty, which then has no factor.
std::string channel_or_nothing(const TensorType& type, int64_t count) {
  if (type.shape.empty()) return "";
  return type.shape[0] == count ? "c" : "_";
}

// Whether running statistics are among its arguments.
bool keeps_statistics(const Call& call) { return !call.op.ends_with(".no_stats"); }

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

}  // namespace

// (x, weight, bias[, running_mean, running_var], training, momentum, eps) -> (out, mean, invstd[, running…])
OpRule batch_norm(const Call& call) {
  const size_t rank = call.inputs[0].shape.size();
  const int64_t count = call.inputs[0].shape.at(1);
  // In evaluation the statistics are operands, so batch and spatial dims pass.
  const std::string x = channels(rank, boolean(call, keeps_statistics(call) ? 5 : 3, true) ? '^' : '.');
  Letters letters{{x}, {x}};
  for (size_t i = 1; i < call.inputs.size(); ++i) letters.inputs.push_back(channel_or_nothing(call.inputs[i], count));
  for (size_t i = 1; i < call.outputs.size(); ++i)
    letters.outputs.push_back(channel_or_nothing(call.outputs[i], count));
  return from_letters(call, letters);
}

// (grad, x, weight, running_mean, running_var, save_mean, save_invstd, train, eps, mask) -> (dx, dw, db)
OpRule batch_norm_backward(const Call& call) {
  const size_t rank = call.inputs[1].shape.size();
  const int64_t count = call.inputs[1].shape.at(1);
  const std::string x = channels(rank, boolean(call, 7, true) ? '^' : '\0');
  Letters letters{{x, x}, {x, "c", "c"}};
  for (size_t i = 2; i < call.inputs.size(); ++i) letters.inputs.push_back(channel_or_nothing(call.inputs[i], count));
  return from_letters(call, letters);
}

// (x, weight, bias[, running_mean, running_var], training, momentum, eps). Only calls in training are expanded.
Values expand_batch_norm(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
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

// (grad, x, weight, running_mean, running_var, save_mean, save_invstd, train, eps, mask). Only calls in training are
// expanded.
Values expand_batch_norm_backward(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
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

}  // namespace spmdx::rules
