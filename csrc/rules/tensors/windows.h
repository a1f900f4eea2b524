// SPDX-License-Identifier: Apache-2.0
// Windows: an op that reads or writes at indices, for those that point into the part of a dim that is here.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

// The arguments of `spmdx.window`, which come before those of the op that it does a window of:
// (op, operand that holds the indices, dim they point into, start of the window, size of the whole dim, …)
enum : int64_t { kWindowOp, kWindowIndex, kWindowDim, kWindowStart, kWindowTotal, kWindowArgs };

// The op itself on the same operands.
Call windowed_call(const Call& call);

OpRule window(const Call& call);                           // spmdx.window
Values expand_window(Builder& builder, const Node& node);  // gather, scatter, index_select, index_add …
void window_start(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
