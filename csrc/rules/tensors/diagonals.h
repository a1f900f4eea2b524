// SPDX-License-Identifier: Apache-2.0
// Ops that read or write the diagonal of two dims: families of the ops of the same names.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule diagonal(const Call& call);
OpRule diagonal_backward(const Call& call);
OpRule diagonal_scatter(const Call& call);
OpRule diag_embed(const Call& call);

}  // namespace spmdx::rules
