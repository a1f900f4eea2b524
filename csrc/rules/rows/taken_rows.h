// SPDX-License-Identifier: Apache-2.0
// Taken rows: slices and padding with zeros, of which each row of the result is a row of the operand, or zeros.
#pragma once
#include <vector>

#include "rules/rule/rule.h"

namespace spmdx::rules {

// The rows taken along one dim. Row i of the result is row first + i·step of the operand, or zeros if there is no such
// row. With `back` (slice_backward, slice_scatter), row i of the operand becomes row first + i·step of the result, and
// all others are zeros.
struct TakenRows {
  size_t dim = 0;
  int64_t first = 0, step = 1;
  bool back = false;

  // How many of the rows `some` of the result are taken from the rows `own` of the operand.
  int64_t count(const Range& some, const Range& own) const;
  // For each of the result's `rows` rows, the row of the operand (which has `of` rows) that it takes; −1 for zeros.
  std::vector<int64_t> sources(int64_t rows, int64_t of) const;
};

// One entry for each dim that a slice, slice_backward, slice_scatter (of its source) or padding with zeros changes.
// Empty for all other calls, and where an argument is a parameter of the plan.
std::vector<TakenRows> taken_rows(const Call& call);

// Where the operand (`of` rows) and the result (`to` rows) are cut into `parts` parts: the largest number of rows that
// a part of the result takes from other parts.
int64_t most_lacked(const TakenRows& rows, int64_t of, int64_t to, int64_t parts);

// Whether both ends of the dim have rows enough to be cut alike, so that each part of the result takes its rows.
bool may_share_rows(const Call& call, size_t dim);
// The rule of an op that takes rows: acted dims are composite and loose where rows may be shared, else they are whole.
OpRule taking_rows(const Call& call, const std::vector<bool>& acted);
OpRule pad(const Call& call);                                  // of constant_pad_nd
OpRule take_rows(const Call& call);                            // of spmdx.take_rows
Values expand_taken_rows(Builder& builder, const Node& node);  // into one spmdx.take_rows per cut dim
// Localise function of spmdx.take_rows. REQUIRES: all rows are taken from the shard itself.
void rows_here(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
