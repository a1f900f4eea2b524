// SPDX-License-Identifier: Apache-2.0
// Matrix products and linear systems: families of the ops of the same names.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule addmm(const Call& call);
OpRule baddbmm(const Call& call);
OpRule addmv(const Call& call);
OpRule addr(const Call& call);
OpRule trilinear(const Call& call);
OpRule linalg_solve(const Call& call);
OpRule scaled_mm(const Call& call);

Values expand_addmm(Builder& builder, const Node& node);  // of addmm, baddbmm and addmv: a product, then an add

}  // namespace spmdx::rules
