// SPDX-License-Identifier: Apache-2.0
// Refuses writes, as PyTorch does, because places of one tensor, or two tensors, share memory.
#pragma once
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"

namespace spmdx::bridge {

// Throws what PyTorch throws for a write to repeated elements.
[[noreturn]] void refuse_repeats();
// Throws where the CPU's kernel would: a written operand has repeats, or another operand shares part of its memory.
// Throws, too, where the CPU's result would depend on the order in which it writes to repeated elements.
void check_overlaps(const OpInfo& info, IValues args);

}  // namespace spmdx::bridge
