// SPDX-License-Identifier: Apache-2.0
// Ops that take a diagonal out of two dims, or put one there.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule diagonal(const Call& call);
OpRule diagonal_backward(const Call& call);
OpRule diagonal_scatter(const Call& call);
OpRule diag_embed(const Call& call);

}  // namespace spmdx::rules
