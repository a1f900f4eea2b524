// SPDX-License-Identifier: Apache-2.0
// Products: with a bias, of three tensors, with scales, solved for.
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

Values expand_addmm(Builder& builder, const Node& node);  // also baddbmm, addmv

}  // namespace spmdx::rules
