// SPDX-License-Identifier: Apache-2.0
// CTC losses: each sequence of the batch by itself.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule ctc_loss(const Call& call);
OpRule ctc_loss_backward(const Call& call);
OpRule ctc_block(const Call& call);  // spmdx.ctc_loss
OpRule ctc_block_backward(const Call& call);

Values expand_ctc_loss(Builder& builder, const Node& node);
Values expand_ctc_loss_backward(Builder& builder, const Node& node);

void ctc_start(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
