// SPDX-License-Identifier: Apache-2.0
// Ops that look at a dim in its order: scans, sorting, the largest elements.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule scan(const Call& call);         // one shape, a dim whole (cummax, sort)
OpRule scan_blocks(const Call& call);  // cumsum: the dim in argument 1 is composite
OpRule topk(const Call& call);
Values expand_scan(Builder& builder, const Node& node);  // cumsum, cumprod, logcumsumexp
Values expand_topk(Builder& builder, const Node& node);

}  // namespace spmdx::rules
