// SPDX-License-Identifier: Apache-2.0
// The arguments of `spmdx.window`, which come before those of the op that it does a window of.
#pragma once
#include "rules/rule.h"

namespace spmdx {

// (op, operand that holds the indices, dim they point into, start of the window, size of the whole dim, …)
enum : int64_t { kWindowOp, kWindowIndex, kWindowDim, kWindowStart, kWindowTotal, kWindowArgs };

// The op itself on the same operands.
Call windowed_call(const Call& call);

}  // namespace spmdx
