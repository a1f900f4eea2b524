// SPDX-License-Identifier: Apache-2.0
// Ops that look each element up in a table, which may not be cut: families of the ops of the same names.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule take(const Call& call);
OpRule isin(const Call& call);
OpRule searchsorted(const Call& call);

}  // namespace spmdx::rules
