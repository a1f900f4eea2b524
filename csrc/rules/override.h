// SPDX-License-Identifier: Apache-2.0
// Overrides: a row of the table changed on purpose, so that a test can see that a wrong rule is noticed.
#pragma once
#include <string>
#include <string_view>

#include "rules/rule/row.h"

namespace spmdx::rules {

// Changes the row of `op` as `changes` says, words of "field=value": letters=*->*, linearity=none|joint|each|monotone|
// movement, operands=N (a mask), localise=none, expand=none, reduced=pass|max (factors that are reduced),
// composite=pass|reduce (factors that need an exchange). Empty changes bring back the table. Forgets all cached rules;
// plans made before keep the rules they were made with. Throws ShardingError unless the environment has
// SPMDX_TEST_RULES, or where a word is unknown.
void override_rule(const std::string& op, const std::string& changes);

// The changed row of this op under its full or base name; null: there is none.
const Row* find_override(std::string_view op);
// Applies the changes that concern factors.
void adjust_factors(const Call& call, OpRule& rule);

}  // namespace spmdx::rules

namespace spmdx {
using rules::override_rule;
}  // namespace spmdx
