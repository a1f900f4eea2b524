// SPDX-License-Identifier: Apache-2.0
// Ops that read or write at indices.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

bool adds_rows(const Call& call);  // what is written is added, also where indices meet

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
