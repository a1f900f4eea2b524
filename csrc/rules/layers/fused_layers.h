// SPDX-License-Identifier: Apache-2.0
// Fused layers: ops that run a whole layer of a model in one kernel.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

// Only the batch passes.
OpRule encoder_layer(const Call& call);         // of aten._transformer_encoder_layer_fwd
OpRule multi_head_attention(const Call& call);  // of aten._native_multi_head_attention

}  // namespace spmdx::rules
