// SPDX-License-Identifier: Apache-2.0
// DoesNotFit: the exception of a rule for a call that is legal in PyTorch, but of a form that the rule does not
// foresee.
#pragma once
#include <concepts>
#include <stdexcept>
#include <string>

namespace spmdx::rules {

// rule_for catches it: the call runs whole on every device, which is reported. If a user has registered the rule, the
// user gets a ShardingError instead.
struct DoesNotFit : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws DoesNotFit where the rule does not foresee the call.
inline void fits(bool holds, const char* what) {
  if (!holds) throw DoesNotFit(what);
}
inline void fits(bool holds, const std::string& what) {
  if (!holds) throw DoesNotFit(what);
}
// The same, of a text that is only made where it is needed.
template <std::invocable What>
void fits(bool holds, const What& what) {
  if (!holds) throw DoesNotFit(what());
}

}  // namespace spmdx::rules
