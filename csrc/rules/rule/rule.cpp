// SPDX-License-Identifier: Apache-2.0
// Rules: names of linearities, and the work of an op.
#include "rules/rule/rule.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"

namespace spmdx {

Linearity parse_linearity(const std::string& text) {
  static const std::unordered_map<std::string, Linearity> names = {{"none", Linearity::none},
                                                                   {"joint", Linearity::joint},
                                                                   {"each", Linearity::each},
                                                                   {"monotone", Linearity::monotone},
                                                                   {"movement", Linearity::movement}};
  const auto found = names.find(text);
  if (found == names.end())
    throw ShardingError("'" + text + "' is no linearity. Expected none, joint, each, monotone or movement.");
  return found->second;
}

namespace {

double elements(const OpRule& rule) {
  double product = 1;
  for (const Factor& factor : rule.factors) product *= static_cast<double>(factor.size);
  return product;
}

}  // namespace

double all_flops(const OpRule& rule) { return rule.flops_per_element * elements(rule); }

void set_all_flops(OpRule& rule, double flops) { rule.flops_per_element = flops / std::max(elements(rule), 1.0); }

}  // namespace spmdx
