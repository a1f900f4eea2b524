// SPDX-License-Identifier: Apache-2.0
// Ranges: rows first, first + step, … of a dim. Where the dim is cut, each device reads or writes those that it holds.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

// Three ops of our own, of arguments (x, dim, first, step), for write_range (base, x, dims, firsts, steps):
constexpr std::string_view kReadRange = "spmdx.read_range";  // row i is row first + i·step of x; zeros where x has none
constexpr std::string_view kPlaceRange = "spmdx.place_range";  // row first + j·step is row j of x; all others are zeros
constexpr std::string_view kWriteRange = "spmdx.write_range";  // likewise in each dim; all others are those of `base`

// The dim is composite in the larger tensor: what a device does not hold it reads as 0, or does not write. Slices whose
// rows are enough to be shared out take them from each other instead (taken_rows.h).
OpRule slice(const Call& call);
OpRule slice_backward(const Call& call);
OpRule select(const Call& call);
OpRule select_backward(const Call& call);
OpRule slice_scatter(const Call& call);
OpRule select_scatter(const Call& call);
Values expand_slice(Builder& builder, const Node& node);  // of slice_backward, too
Values expand_select(Builder& builder, const Node& node);
Values expand_select_backward(Builder& builder, const Node& node);
Values expand_slice_scatter(Builder& builder, const Node& node);
Values expand_select_scatter(Builder& builder, const Node& node);

OpRule range(
    const Call& call);  // of read_range and place_range: the dim of x is reduced by a sum, that of the result passes
OpRule write_range(const Call& call);
// Their localise functions, which count `first` from the local rows.
void read_range_first(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void place_range_first(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void write_range_first(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
