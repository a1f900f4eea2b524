// SPDX-License-Identifier: Apache-2.0
// Group norms: batch and groups pass; channels within a group, and spatial dims, are composite.
#include "rules/layers/group_norm.h"

#include "graph/args.h"
#include "rules/build/norm_maths.h"
#include "rules/build/split_dims.h"

namespace spmdx::rules {
namespace {

struct Groups {
  Shape split;                // of x: [n, groups, channels of a group, space …]
  Shape channels;             // of a number per channel: [1, groups, channels of a group, 1 …]
  Shape rows;                 // of a statistic: [n, groups, 1, 1 …]
  std::vector<int64_t> own;   // dims of `split` that a statistic reduces
  std::vector<int64_t> each;  // dims of `split` that the gradient of a weight per channel sums over
};

Groups groups_of(const Shape& x, int64_t groups) {
  Groups result{x, {}, {}, {}, {0}};
  result.split.at(1) = x.at(1) / groups;
  result.split.insert(result.split.begin() + 1, groups);
  result.channels.assign(result.split.size(), 1);
  result.channels[1] = groups;
  result.channels[2] = result.split[2];
  result.rows.assign(result.split.size(), 1);
  result.rows[0] = x.at(0);
  result.rows[1] = groups;
  for (size_t d = 2; d < result.split.size(); ++d) {
    result.own.push_back(static_cast<int64_t>(d));
    if (d > 2) result.each.push_back(static_cast<int64_t>(d));
  }
  return result;
}

}  // namespace

// (x, weight, bias, N, C, HxW, group, eps) -> (out, mean, rstd)
OpRule group_norm(const Call& call) {
  const int64_t groups = integer(call, 6, 1);
  const std::string x = "bgc^" + dims(call.inputs[0].shape.size() - 2, 'p', '^');
  SplitDims split(call);
  split.split_input(0, 1, groups);
  split.split_output(0, 1, groups);
  Letters letters{{x}, {x, "bg", "bg"}};
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    split.split_input(i, 0, groups);
    letters.inputs.push_back("gc");
  }
  return split.rule(letters);
}

// (grad, x, mean, rstd, weight, N, C, HxW, group, mask) -> (dx, dw, db)
OpRule group_norm_backward(const Call& call) {
  const int64_t groups = integer(call, 8, 1);
  const std::string x = "bgc^" + dims(call.inputs[1].shape.size() - 2, 'p', '^');
  SplitDims split(call);
  for (size_t i : {0, 1}) split.split_input(i, 1, groups);
  if (produced(call.outputs[0])) split.split_output(0, 1, groups);
  for (size_t i : {1, 2})
    if (produced(call.outputs[i])) split.split_output(i, 0, groups);
  Letters letters{{x, x, "bg", "bg"}, {x, "gc", "gc"}};
  if (call.inputs.size() > 4) {
    split.split_input(4, 0, groups);
    letters.inputs.push_back("gc");
  }
  return split.rule(letters);
}

// (x, weight, bias, N, C, HxW, group, eps)
Values expand_group_norm(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const Groups groups = groups_of(maths.shape(maths.input(0)), integer(maths.call(), 6, 1));
  const ValueId x = maths.view(maths.wide(maths.input(0)), groups.split);
  const Normalised stats = normalise(maths, x, groups.own, maths.scalar(7));
  ValueId out = stats.xhat;
  if (operand(maths.call(), 1) >= 0) out = maths.mul(out, given(maths, 1, groups.channels));
  if (operand(maths.call(), 2) >= 0) out = maths.add(out, given(maths, 2, groups.channels));
  return {finish(maths, out, 0), finish(maths, stats.mean, 1), finish(maths, stats.rstd, 2)};
}

// (grad, x, mean, rstd, weight, N, C, HxW, group, mask)
Values expand_group_norm_backward(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const Groups groups = groups_of(maths.shape(maths.input(1)), integer(maths.call(), 8, 1));
  const ValueId grad = maths.view(maths.wide(maths.input(0)), groups.split);
  const ValueId x = maths.view(maths.wide(maths.input(1)), groups.split);
  const ValueId rstd = given(maths, 3, groups.rows);
  const ValueId xhat = maths.mul(maths.sub(x, given(maths, 2, groups.rows)), rstd);
  Values results(3, kNone);
  if (wanted(maths, 0)) {
    const bool weighted = operand(maths.call(), 4) >= 0;
    const ValueId g = weighted ? maths.mul(grad, given(maths, 4, groups.channels)) : grad;
    results[0] = finish(maths, input_gradient(maths, g, xhat, rstd, groups.own), 0);
  }
  auto channel_sum = [&](ValueId value) { return maths.sum(value, groups.each, false, maths.dtype(value)); };
  if (wanted(maths, 1)) results[1] = finish(maths, channel_sum(maths.mul(grad, xhat)), 1);
  if (wanted(maths, 2)) results[2] = finish(maths, channel_sum(grad), 2);
  return results;
}

// (x, weight, bias, N, C, HxW, group, eps) -> (out, mean [N, group], …)
void group_norm_sizes(const Call&, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args) {
  args.at(3) = inputs.at(0).at(0).extent;
  args.at(4) = inputs.at(0).at(1).extent;
  args.at(6) = outputs.at(1).at(1).extent;
}

// (grad, x, mean, rstd, weight, N, C, HxW, group, mask)
void group_norm_backward_sizes(const Call&, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  args.at(5) = inputs.at(1).at(0).extent;
  args.at(6) = inputs.at(1).at(1).extent;
  args.at(8) = inputs.at(2).at(1).extent;
}

}  // namespace spmdx::rules
