// SPDX-License-Identifier: Apache-2.0
// Ops that read or write at indices given by a tensor: families of the ops of the same names.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

// Whether the call adds what it writes to what is there, so that writes to the same index add up.
bool adds_rows(const Call& call);

OpRule gather(const Call& call);
OpRule scatter(const Call& call);
OpRule index(const Call& call);
OpRule index_put(const Call& call);
OpRule index_select(const Call& call);
OpRule index_add(const Call& call);
OpRule index_copy(const Call& call);
OpRule index_fill(const Call& call);
OpRule index_reduce(const Call& call);

}  // namespace spmdx::rules
