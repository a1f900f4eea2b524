// SPDX-License-Identifier: Apache-2.0
// Rows that are taken: slices and padding with zeros, of which every row is one of the operand's, or zeros.
#pragma once
#include <vector>

#include "rules/rule/rule.h"

namespace spmdx::rules {

// Along one dim. Row i of the result is row first + i·step of the operand; `back`: the other way round. Zeros where
// there is no such row.
struct TakenRows {
  size_t dim = 0;
  int64_t first = 0, step = 1;
  bool back = false;

  // How many of the result's rows `some` are among the operand's rows `own`.
  int64_t count(const Range& some, const Range& own) const;
  std::vector<int64_t> sources(int64_t rows, int64_t of) const;  // −1: zeros
};

// The dims that a slice, the backward of one or padding with zeros changes; none where its arguments are not known yet.
std::vector<TakenRows> taken_rows(const Call& call);

// Rows that a part of the dim lacks, the one that lacks most.
int64_t most_lacked(const TakenRows& rows, int64_t of, int64_t to, int64_t parts);

OpRule slice(const Call& call);
OpRule slice_backward(const Call& call);
OpRule pad(const Call& call);
OpRule take_rows(const Call& call);  // spmdx.take_rows
Values expand_taken_rows(Builder& builder, const Node& node);
void rows_here(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
