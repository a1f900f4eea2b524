// SPDX-License-Identifier: Apache-2.0
// Negative log-likelihoods: each row has scores of classes, and the loss reads the score of one class of each row.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule nll_loss(const Call& call);           // of nll_loss and nll_loss2d: classes are composite
OpRule nll_loss_backward(const Call& call);  // of their backward
OpRule nll_rows(const Call& call);           // of spmdx.nll_rows: the loss of each row, summed over cut classes
OpRule put_rows(const Call& call);           // of spmdx.put_rows: puts one value into each row of zeros

Values expand_nll_loss(Builder& builder, const Node& node);           // into spmdx.nll_rows and sums
Values expand_nll_loss_backward(Builder& builder, const Node& node);  // into spmdx.put_rows

// Localise functions: the first local class; the start and size of the local part of the new dim.
void nll_start(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void put_rows_box(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
