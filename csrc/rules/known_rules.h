// SPDX-License-Identifier: Apache-2.0
// Known rules: those that were made for a call lately, until a row changes.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

struct KnownRule {
  OpRuleRef rule;    // null: none is known
  uint64_t age = 0;  // how often rules were forgotten
};

// Thread-safe, all of these.
KnownRule known_rule(const CallRef& call);
// Keeps a rule that was made of the rows of that age, unless they have changed. Returns the one to use.
OpRuleRef keep_rule(const CallRef& call, OpRuleRef rule, uint64_t age);
void forget_rules();

}  // namespace spmdx::rules
