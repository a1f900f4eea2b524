// SPDX-License-Identifier: Apache-2.0
// Memory that places of one tensor, or two tensors, share; and the writes that PyTorch refuses because of it.
#pragma once
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"

namespace spmdx::bridge {

// Throws what PyTorch throws of a write to repeated elements.
[[noreturn]] void refuse_repeats();
// Throws where the CPU's kernel would: a written operand that repeats elements, or that another operand partly covers.
// Throws, too, where the CPU's result would depend on the order in which it writes to repeated elements.
void check_overlaps(const OpInfo& info, IValues args);

}  // namespace spmdx::bridge
