// SPDX-License-Identifier: Apache-2.0
// Known rules: a cache of the rules that were made for recent calls; it is emptied when a row changes.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

struct KnownRule {
  OpRuleRef rule;    // null: the cache has none for the call
  uint64_t age = 0;  // how often the cache had been emptied when it was asked
};

// All three functions are thread-safe.
// The cached rule of this call, and the age to hand to keep_rule.
KnownRule known_rule(const CallRef& call);
// Keeps `rule`, unless the cache was emptied since known_rule returned `age`. Returns the rule to use: the one that
// another thread has kept for an equal call, or else `rule`.
OpRuleRef keep_rule(const CallRef& call, OpRuleRef rule, uint64_t age);
// Empties the cache. To be called after a row was added or changed.
void forget_rules();

}  // namespace spmdx::rules
