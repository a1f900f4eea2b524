// SPDX-License-Identifier: Apache-2.0
// Views of the same elements in other dims, or of the same bits as another dtype.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule view(const Call& call);
OpRule view_dtype(const Call& call);

}  // namespace spmdx::rules
