// SPDX-License-Identifier: Apache-2.0
// Pointwise: dims of all tensors are aligned at the right, and each is one factor.
#include "rules/tensors/pointwise.h"

#include "base/error.h"
#include "graph/args.h"
#include "rules/build/letters.h"
#include "rules/build/op_builder.h"

namespace spmdx::rules {

OpRule pointwise(const Call& call) {
  return from_letters(
      call, {std::vector<std::string>(call.inputs.size(), "*"), std::vector<std::string>(call.outputs.size(), "*")});
}

OpRule channelwise(const Call& call) {
  const size_t rank = call.inputs.at(0).shape.size();
  const std::string all = dims(rank);
  const std::string channel(1, all.at(static_cast<size_t>(normal_dim(integer(call, 3, 0), rank))));
  Letters letters{{all}, std::vector<std::string>(call.outputs.size(), all)};
  letters.inputs.resize(call.inputs.size(), channel);
  return from_letters(call, letters);
}

OpRule where_other(const Call& call) {
  OpRule rule = pointwise(call);
  if (!is_number(argument(call, 2), 0)) return rule;
  rule.linearity = Linearity::joint;
  rule.linear_inputs = 2;
  return rule;
}

OpRule to_copy(const Call& call) {
  OpRule rule = pointwise(call);
  if (is_floating(call.inputs[0].dtype) && is_floating(call.outputs[0].dtype)) rule.linearity = Linearity::joint;
  return rule;
}

OpRule replicated(const Call& call) {
  OpRule rule;
  auto add = [&rule](const TensorType& type) {
    TensorFactors factors(type.shape.size());
    for (size_t d = 0; d < type.shape.size(); ++d) {
      if (type.shape[d] == 1) continue;
      factors[d] = {static_cast<int>(rule.factors.size())};
      rule.factors.push_back({type.shape[d], FactorKind::replicate, Reduction::none});
    }
    return factors;
  };
  for (const TensorType& type : call.inputs) rule.inputs.push_back(add(type));
  for (const TensorType& type : call.outputs) rule.outputs.push_back(add(type));
  return rule;
}

// Global j − i ≤ k is local j' − i' ≤ k + row start − column start, with j the column and i the row.
void diagonal_offset(const Call& call, const Boxes&, const Boxes& outputs, std::vector<Arg>& args) {
  const Box& box = outputs.at(0);
  internal_check(box.size() >= 2, "tril or triu of fewer than two dims");
  if (args.size() < 2) args.resize(2, int64_t{0});
  args[1] = integer(call, 1, 0) + box[box.size() - 2].start - box[box.size() - 1].start;
}

// (Tensor[] grads, found_inf, inv_scale) -> (grads…, found_inf). found_inf of one tensor is the maximum over devices,
// so its dims are reduce factors. Dims of several tensors are composite.
OpRule amp_unscale(const Call& call) {
  const size_t tensors = call.inputs.size() - 2;
  if (tensors == 1) {
    const std::string text = dims(call.inputs[0].shape.size());
    return from_letters(call, {{text, "", ""}, {text, ""}}, Reduction::max);
  }
  OpRule rule = replicated(call);
  rule.factors.clear();
  for (size_t i = 0; i < tensors; ++i) {
    for (size_t d = 0; d < call.inputs[i].shape.size(); ++d) {
      if (call.inputs[i].shape[d] == 1) continue;
      const int index = static_cast<int>(rule.factors.size());
      rule.factors.push_back({call.inputs[i].shape[d], FactorKind::composite, Reduction::none});
      rule.inputs[i][d] = rule.outputs[i][d] = {index};
    }
  }
  return rule;
}

// One call per tensor, each with its own found_inf; the result is their maximum.
Values expand_amp_unscale(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
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

}  // namespace spmdx::rules
