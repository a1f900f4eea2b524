// SPDX-License-Identifier: Apache-2.0
// Rules of pointwise ops and of ops that create values out of nothing.
#include "rules/build/fits.h"
#include "rules/build/maths.h"
#include "rules/families.h"

namespace spmdx {
namespace {

Letters all_stars(const Call& call) {
  return {std::vector<std::string>(call.inputs.size(), "*"), std::vector<std::string>(call.outputs.size(), "*")};
}

}  // namespace

OpRule pointwise(const Call& call) { return from_letters(call, all_stars(call)); }

OpRule channelwise(const Call& call) {
  const size_t rank = call.inputs.at(0).shape.size();
  const std::string all = dims(rank);
  const std::string channel(1, all.at(static_cast<size_t>(normal_dim(integer(call, 3, 0), rank))));
  Letters letters{{all}, std::vector<std::string>(call.outputs.size(), all)};
  letters.inputs.resize(call.inputs.size(), channel);
  return from_letters(call, letters);
}

OpRule random_of(const Call& call) {
  fits(!is_complex(call.outputs.at(0).dtype), "complex random numbers have no kernel of their own");
  return pointwise(call);
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

OpRule creation(const Call& call) { return from_letters(call, all_stars(call)); }

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

// Offsets are exact between integers only; a start of floats is computed whole.
OpRule arange(const Call& call) {
  const bool whole_numbers = std::holds_alternative<int64_t>(argument(call, 0)) &&
                             std::holds_alternative<int64_t>(argument(call, 1)) &&
                             !std::holds_alternative<double>(argument(call, 2));
  return whole_numbers ? creation(call) : replicated(call);
}

// (Tensor[] grads, found_inf, inv_scale) -> (grads…, found_inf). What is found on any device counts everywhere: a
// maximum, expressible for one tensor; several are expanded to one call each.
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

}  // namespace spmdx
