// SPDX-License-Identifier: Apache-2.0
// Whole layers in one kernel.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule encoder_layer(const Call& call);
OpRule multi_head_attention(const Call& call);

}  // namespace spmdx::rules
