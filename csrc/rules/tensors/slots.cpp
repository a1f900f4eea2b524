// SPDX-License-Identifier: Apache-2.0
// Slots: pointwise rules for the tensors of one slot.
#include <algorithm>

#include "rules/build/fits.h"
#include "rules/build/op_builder.h"
#include "rules/rule/rule.h"

namespace spmdx::rules {
namespace {

// The length of the lists of a call. REQUIRES: all lists that are not empty are equally long, else DoesNotFit.
size_t slots_of(const Call& call) {
  size_t count = 0;
  for (const Arg& arg : call.args)
    if (const auto* list = std::get_if<TensorListArg>(&arg)) count = std::max(count, list->inputs.size());
  fits(count > 0 && call.outputs.size() % count == 0, "lists of several lengths in " + call.op);
  return count;
}

// The operands in this slot, one of each list; the first is the parameter.
std::vector<uint32_t> operands_of(const Call& call, size_t slot) {
  std::vector<uint32_t> inputs;
  for (const Arg& arg : call.args)
    if (const auto* list = std::get_if<TensorListArg>(&arg); list && !list->inputs.empty())
      inputs.push_back(list->inputs.at(slot));
  return inputs;
}

}  // namespace

// Tensors of a slot that have the parameter's shape share the factors of its dims; others (the step count) have none.
OpRule slots(const Call& call) {
  const size_t count = slots_of(call);
  OpRule rule;
  for (const TensorType& type : call.inputs) rule.inputs.emplace_back(type.shape.size());
  for (const TensorType& type : call.outputs) rule.outputs.emplace_back(type.shape.size());
  for (size_t slot = 0; slot < count; ++slot) {
    const std::vector<uint32_t> operands = operands_of(call, slot);
    const Shape& shape = call.inputs[operands.at(0)].shape;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1) continue;
      const int factor = static_cast<int>(rule.factors.size());
      rule.factors.push_back({shape[d], count == 1 ? FactorKind::pass : FactorKind::composite, Reduction::none});
      for (uint32_t i : operands)
        if (call.inputs[i].shape == shape) rule.inputs[i][d] = {factor};
      for (size_t r = slot; r < call.outputs.size(); r += count)
        if (call.outputs[r].shape == shape) rule.outputs[r][d] = {factor};
    }
  }
  return rule;
}

Values expand_slots(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const Call& call = maths.call();
  const size_t count = slots_of(call), groups = call.outputs.size() / count;
  Values results(call.outputs.size());
  for (size_t slot = 0; slot < count; ++slot) {
    std::vector<Arg> args = call.args;
    std::vector<ValueId> inputs;
    const auto taken = [&](uint32_t input) {
      inputs.push_back(maths.input(input));
      return static_cast<uint32_t>(inputs.size() - 1);
    };
    for (Arg& arg : args) {
      if (auto* list = std::get_if<TensorListArg>(&arg); list && !list->inputs.empty()) {
        fits(list->inputs.size() == count, "lists of several lengths in " + call.op);
        list->inputs = {taken(list->inputs[slot])};
      } else if (auto* tensor = std::get_if<TensorArg>(&arg)) {
        tensor->input = taken(tensor->input);
      }
    }
    std::vector<TensorType> outputs;
    for (size_t group = 0; group < groups; ++group) outputs.push_back(call.outputs[group * count + slot]);
    const ValueId first = maths.emit(call.op, std::move(args), std::move(inputs), std::move(outputs),
                                     Scalar{{}, call.num_params, node.param});
    for (size_t group = 0; group < groups; ++group) results[group * count + slot] = first + static_cast<ValueId>(group);
  }
  return results;
}

}  // namespace spmdx::rules
