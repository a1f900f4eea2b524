// SPDX-License-Identifier: Apache-2.0
// Lookup: finds or makes the rule of a call.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "rules/rule/rule.h"

namespace spmdx::rules {

// The rule of this call; cached by call. Never null: an op without a row gets a fallback rule, under which nothing may
// be cut. Throws ShardingError where a registered rule does not fit the call.
OpRuleRef rule_for(const CallRef& call);

// True for an op that has a row in the table or a registered rule, under its full or base name.
bool has_rule(std::string_view op);
std::vector<std::string> all_rules();  // the names of all ops in the table, sorted

}  // namespace spmdx::rules

namespace spmdx {
using rules::all_rules;
using rules::has_rule;
using rules::rule_for;
}  // namespace spmdx
