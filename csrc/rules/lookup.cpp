// SPDX-License-Identifier: Apache-2.0
// Lookup: finds the row of an op, and makes its rule for one call; a call that no row fits gets the fallback rule.
#include "rules/lookup.h"

#include <algorithm>

#include "base/error.h"
#include "graph/args.h"
#include "rules/build/fits.h"
#include "rules/build/letters.h"
#include "rules/known_rules.h"
#include "rules/override.h"
#include "rules/registered.h"
#include "rules/rule/row.h"
#include "rules/tensors/pointwise.h"

namespace spmdx::rules {
namespace {

OpRule fallback_rule(const Call& call) {
  OpRule rule = replicated(call);
  rule.fallback = true;
  return rule;
}

bool draws_numbers(const Call& call) {
  return std::any_of(call.args.begin(), call.args.end(), [](const Arg& arg) {
    const auto* opaque = std::get_if<OpaqueArg>(&arg);
    return opaque && opaque->text == "generator";
  });
}

bool has_unknown_index(const TensorFactors& factors, size_t count) {
  for (const std::vector<int>& dim : factors)
    for (int factor : dim)
      if (factor < 0 || static_cast<size_t>(factor) >= count) return true;
  return false;
}

// Checks what every rule must hold to: the sizes of the factors of a dim multiply to the size of the dim. A dim may
// have no factor; a dim of a loose factor may have any size.
void check(const OpRule& rule, const Call& call) {
  auto check_tensor = [&](const TensorFactors& factors, const TensorType& type) {
    internal_check(factors.size() == type.shape.size() && !has_unknown_index(factors, rule.factors.size()),
                   [&] { return "the rule of " + call.op + " does not fit " + str(type); });
    for (size_t d = 0; d < factors.size(); ++d) {
      int64_t product = 1;
      for (int factor : factors[d]) product *= rule.factors[static_cast<size_t>(factor)].size;
      if (factors[d].size() == 1 && rule.factors[static_cast<size_t>(factors[d][0])].loose) continue;
      internal_check(factors[d].empty() || product == type.shape[d], [&] {
        return "the factors of dim " + std::to_string(d) + " of " + str(type) + " in " + call.op + " multiply to " +
               std::to_string(product);
      });
    }
  };
  internal_check(rule.inputs.size() == call.inputs.size() && rule.outputs.size() == call.outputs.size(),
                 [&] { return "the rule of " + call.op + " has another number of tensors"; });
  for (size_t i = 0; i < rule.inputs.size(); ++i) check_tensor(rule.inputs[i], call.inputs[i]);
  for (size_t i = 0; i < rule.outputs.size(); ++i)
    if (produced(call.outputs[i])) check_tensor(rule.outputs[i], call.outputs[i]);
}

OpRule instantiate(const Row& row, const Call& call) {
  OpRule rule = row.family ? row.family(call) : from_letters(call, parse_letters(row.letters, call), row.reduction);
  const bool rounded = row.rounds && !is_floating(call.outputs.at(0).dtype);
  if (row.linearity != Linearity::none && !rounded) {
    rule.linearity = row.linearity;
    rule.linear_inputs = row.linear_inputs;
  }
  rule.localise = row.localise;
  rule.expand = row.expand;
  rule.random = row.random;
  if (row.flops != 1) rule.flops_per_element = row.flops;  // else the number that the family set
  rule.product = rule.product || rule.flops_per_element >= 2;
  bool composite = false;
  for (Factor& factor : rule.factors) {
    if (factor.kind != FactorKind::composite) continue;
    if (!rule.expand) factor = {factor.size, FactorKind::replicate, Reduction::none, factor.loose};
    composite = true;
  }
  adjust_factors(call, rule);
  if (!composite) rule.expand = nullptr;  // expansions are written for calls with a composite factor
  check(rule, call);
  return rule;
}

[[noreturn]] void does_not_fit(const Row& row, const Call& call) {
  std::string operands, results;
  for (const TensorType& type : call.inputs) operands += (operands.empty() ? "" : ", ") + str(type);
  for (const TensorType& type : call.outputs) results += (results.empty() ? "" : ", ") + str(type);
  throw ShardingError(
      "the rule '" + std::string(row.letters) + "' of " + call.op + " does not fit " + operands + " -> " + results +
      ". Expected a letter for each dim, and equal sizes where letters are equal. Register another rule.");
}

OpRule make_rule(const Call& call) {
  const Row* row = find_override(call.op);
  if (!row) row = find_row(call.op);
  if (!row) row = find_registered(call.op);
  OpRule rule = fallback_rule(call);
  rule.random = draws_numbers(call);
  // A generator of PyTorch draws numbers in the order of all elements, so a shard would get other numbers. A row marked
  // random says that its kernel takes the number of an element from the element's global index, so it may be cut.
  if (!row || (rule.random && !row->random)) return rule;
  // A call of a form that the rule does not foresee (a mask as an index, unequal sizes) runs replicated, which is
  // reported. Any other exception of a family is a bug, so it is not caught here: a bug that runs replicated would
  // never be found.
  try {
    return instantiate(*row, call);
  } catch (const DoesNotFit&) {
    if (row->registered) does_not_fit(*row, call);
  } catch (const DimOutOfRange&) {  // the call runs whole, so that its kernel raises what eager raises
  }
  rule.random |= row->random;
  return rule;
}

}  // namespace

OpRuleRef rule_for(const CallRef& call) {
  const KnownRule known = known_rule(call);
  return known.rule ? known.rule : keep_rule(call, std::make_shared<const OpRule>(make_rule(*call)), known.age);
}

bool has_rule(std::string_view op) { return find_row(op) != nullptr || find_registered(op) != nullptr; }

std::vector<std::string> all_rules() {
  std::vector<std::string> names;
  for (const Row& row : rows()) names.emplace_back(row.op);
  for (const PointwiseOps& group : pointwise_ops())
    for (std::string_view op : group.ops) names.emplace_back(op);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace spmdx::rules
