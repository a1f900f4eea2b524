// SPDX-License-Identifier: Apache-2.0
// CTC losses: each sequence of the batch is computed on its own, so the batch may be cut.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule ctc_loss(const Call& call);            // of aten._ctc_loss: the batch is composite
OpRule ctc_loss_backward(const Call& call);   // of its backward
OpRule ctc_block(const Call& call);           // of spmdx.ctc_loss: the batch passes
OpRule ctc_block_backward(const Call& call);  // of its backward

// Into spmdx.ctc_loss and its backward, which have one argument more: the first sequence of the shard.
Values expand_ctc_loss(Builder& builder, const Node& node);
Values expand_ctc_loss_backward(Builder& builder, const Node& node);

// Localise function of both spmdx ops.
void ctc_start(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
