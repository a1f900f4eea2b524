// SPDX-License-Identifier: Apache-2.0
// Lookup: from a call to its rule.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "rules/rule/rule.h"

namespace spmdx::rules {

// The rule of this call; cached by call. Never null: an op without a row gets a fallback rule.
OpRuleRef rule_for(const CallRef& call);

// True for an op whose row exists, under its full or base name.
bool has_rule(std::string_view op);
std::vector<std::string> all_rules();  // names in the table, sorted

}  // namespace spmdx::rules

namespace spmdx {
using rules::all_rules;
using rules::has_rule;
using rules::rule_for;
}  // namespace spmdx
