// SPDX-License-Identifier: Apache-2.0
// Known rules: one table from calls to rules, under a lock; it holds the rules that were used last.
#include "rules/known_rules.h"

#include <mutex>

#include "base/latest.h"
#include "graph/starts.h"

namespace spmdx::rules {
namespace {

constexpr size_t kCached = 1 << 13;  // half of the rules that are kept; a rule takes some kilobytes

// A rule does not depend on where a part begins.
struct KindHash {
  size_t operator()(const CallRef& call) const { return call->kind; }
};
struct SameKind {
  bool operator()(const CallRef& a, const CallRef& b) const { return a == b || same_kind(*a, *b); }
};

struct Known {
  std::mutex mutex;
  Latest<CallRef, OpRuleRef, KindHash, SameKind> rules{kCached};
  uint64_t times_forgotten = 0;
};
Known& known() {
  static auto* instance = new Known;
  return *instance;
}

}  // namespace

KnownRule known_rule(const CallRef& call) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  const OpRuleRef* rule = all.rules.find(call);
  return {rule ? *rule : nullptr, all.times_forgotten};
}

OpRuleRef keep_rule(const CallRef& call, OpRuleRef rule, uint64_t age) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  return age == all.times_forgotten ? all.rules.insert(call, std::move(rule)) : rule;
}

void forget_rules() {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  all.rules.clear();
  ++all.times_forgotten;
}

}  // namespace spmdx::rules
