// SPDX-License-Identifier: Apache-2.0
// Overrides: tests change a row of the table to a wrong one, and check that spmdx notices.
#pragma once
#include <string>
#include <string_view>

#include "rules/rule/row.h"

namespace spmdx::rules {

// Changes the row of `op`. `changes` is a list of words "field=value": letters=*->*,
// linearity=none|joint|each|monotone| movement, operands=N (the bits of Row::linear_inputs), localise=none,
// expand=none, reduced=pass|max (of reduce factors), composite=pass|reduce (of composite factors). Empty `changes`
// restore the row of the table. Empties the cache of rules; plans that were made before keep their rules. Throws
// ShardingError where a word is unknown, and always if SPMDX_TEST_RULES is not in the environment.
void override_rule(const std::string& op, const std::string& changes);

// The changed row of this op under its full or base name, or null. Valid until the override of the op is changed.
const Row* find_override(std::string_view op);
// Applies the `reduced` and `composite` changes of the call's op, if it has any, to the factors of `rule`.
void adjust_factors(const Call& call, OpRule& rule);

}  // namespace spmdx::rules

namespace spmdx {
using rules::override_rule;
}  // namespace spmdx
