// SPDX-License-Identifier: Apache-2.0
// Ops that depend on the order along a dim, which is composite: scans (cumsum) and topk.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule scan_blocks(const Call& call);                    // the dim in argument 1 is composite (cumsum)
OpRule topk(const Call& call);                           // the dim of x is composite
Values expand_scan(Builder& builder, const Node& node);  // of cumsum, cumprod, logcumsumexp
Values expand_topk(Builder& builder, const Node& node);

}  // namespace spmdx::rules
