// SPDX-License-Identifier: Apache-2.0
// Reshapes: view (the same elements in other dims) and view.dtype (the same bytes as another dtype).
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule view(const Call& call);        // dims share factors as far as their sizes allow
OpRule view_dtype(const Call& call);  // the last dim may not be cut if elements change their size

}  // namespace spmdx::rules
