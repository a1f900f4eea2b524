// SPDX-License-Identifier: Apache-2.0
// Ops that look every element up in a table that is whole on each device.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule take(const Call& call);
OpRule isin(const Call& call);
OpRule searchsorted(const Call& call);

}  // namespace spmdx::rules
