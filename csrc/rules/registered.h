// SPDX-License-Identifier: Apache-2.0
// Registered rules: rows that users add for ops of their own.
#pragma once
#include <string>
#include <string_view>

#include "rules/rule/row.h"

namespace spmdx::rules {

// What a user says of an op: some fields of Row, with strings that it owns.
struct RegisteredRule {
  std::string op;       // "ns.op" or "ns.op.overload"
  std::string letters;  // as in letters.h; the marks of composite factors are not allowed
  Linearity linearity = Linearity::none;
  uint64_t linear_inputs = ~uint64_t{0};
  Reduction reduction = Reduction::sum;
  double flops = 1;
};

// Registers a rule, in place of an earlier one of the same op, and empties the cache of rules; plans that were made
// before keep their rules. `operands` and `results` count the tensors of the op's schema; −1 where it has a list of
// tensors. Throws ShardingError for letters that are no rule of such an op, and for an op that has a row in the table.
void register_rule(RegisteredRule rule, int operands, int results);

// The row of the rule that is registered for this op under its full or base name, or null. Valid for the life of the
// process. Thread-safe.
const Row* find_registered(std::string_view op);

}  // namespace spmdx::rules

namespace spmdx {
using rules::register_rule;
using rules::RegisteredRule;
}  // namespace spmdx
