// SPDX-License-Identifier: Apache-2.0
// Rules: parses the names of linearities.
#include "rules/rule/rule.h"

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

}  // namespace spmdx
