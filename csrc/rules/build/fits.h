// SPDX-License-Identifier: Apache-2.0
// Does not fit: a call of a form that a rule does not foresee is one that PyTorch allows, and no bug of ours.
#pragma once
#include <stdexcept>
#include <string>

namespace spmdx::rules {

// Such a call is run whole on every device, and reported; of a rule that a user registered, it is their error.
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

}  // namespace spmdx::rules
