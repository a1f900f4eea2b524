// SPDX-License-Identifier: Apache-2.0
// Registered rules: rows that users add for ops of their own.
#pragma once
#include <string>
#include <string_view>

#include "rules/rule/row.h"

namespace spmdx::rules {

// Like Row, and owns its texts.
struct RegisteredRule {
  std::string op;       // "ns.op" or "ns.op.overload"
  std::string letters;  // letters.h, without the marks of composite factors
  Linearity linearity = Linearity::none;
  uint64_t linear_inputs = ~uint64_t{0};
  Reduction reduction = Reduction::sum;
  double flops = 1;
};

// Replaces a rule that was registered for the same op, and forgets all cached rules; plans made before keep theirs.
// Throws ShardingError: letters that are no rule for an op with so many tensor operands and results (of lists: −1), or
// an op that the table has a row for.
void register_rule(RegisteredRule rule, int operands, int results);

// Null: none is registered for this op under its full or base name.
const Row* find_registered(std::string_view op);

}  // namespace spmdx::rules

namespace spmdx {
using rules::register_rule;
using rules::RegisteredRule;
}  // namespace spmdx
