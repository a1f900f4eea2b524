// SPDX-License-Identifier: Apache-2.0
// Windows: spmdx.window runs an indexing op on one part of a dim, for only those indices that point into that part.
#pragma once
#include "rules/rule/row.h"

namespace spmdx::rules {

// Arguments of spmdx.window: (op, operand that holds the indices, dim that they point into, start of the window, size
// of the whole dim), and then the arguments of the indexing op.
enum : int64_t { kWindowOp, kWindowIndex, kWindowDim, kWindowStart, kWindowTotal, kWindowArgs };

// The call of the indexing op that a spmdx.window runs.
Call windowed_call(const Call& call);

// Whether the indexing op replaces or adds what those indices point to that lie in the window, and leaves the rest.
bool writes_in_place(const Call& inner);
// Whether the call is a spmdx.window of an op that adds; whether it makes zeros; whether it is a sum of two tensors.
bool adds_in_window(const Call& call);
bool makes_zeros(const Call& call);
bool is_sum(const Call& call);
MemoryUse memory_of_window(const Call& call);

OpRule window(const Call& call);                           // of spmdx.window: the indexed dim may be cut
Values expand_window(Builder& builder, const Node& node);  // of gather, scatter, index_select, index_add, …
// Localise function of spmdx.window: the window begins where the shard begins.
void window_start(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
