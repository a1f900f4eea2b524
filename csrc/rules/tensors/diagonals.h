// SPDX-License-Identifier: Apache-2.0
// Ops that read or write the diagonal of two dims: families of the ops of the same names.
#pragma once
#include <string_view>

#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule diagonal(const Call& call);
OpRule diagonal_backward(const Call& call);
OpRule diagonal_scatter(const Call& call);
OpRule diag_embed(const Call& call);
Values expand_diagonal(Builder& builder, const Node& node);
Values expand_diagonal_scatter(Builder& builder, const Node& node);

// Two ops of our own, whose last argument is the first element of the diagonal that runs through this shard:
constexpr std::string_view kReadDiagonal = "spmdx.read_diagonal";    // (x, offset, dim1, dim2, first); all others are 0
constexpr std::string_view kWriteDiagonal = "spmdx.write_diagonal";  // (x, diagonals, offset, dim1, dim2, first)
OpRule read_diagonal(const Call& call);                              // the two dims are reduced by a sum
OpRule write_diagonal(const Call& call);
// Their localise functions.
void read_diagonal_first(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void write_diagonal_first(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
