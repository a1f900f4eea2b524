// SPDX-License-Identifier: Apache-2.0
// Negative log-likelihoods: of each row one class is looked at.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule nll_loss(const Call& call);
OpRule nll_loss_backward(const Call& call);
OpRule nll_rows(const Call& call);  // spmdx.nll_rows
OpRule put_rows(const Call& call);  // spmdx.put_rows

Values expand_nll_loss(Builder& builder, const Node& node);
Values expand_nll_loss_backward(Builder& builder, const Node& node);

void nll_start(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void put_rows_box(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
