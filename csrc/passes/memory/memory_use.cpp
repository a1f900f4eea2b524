// SPDX-License-Identifier: Apache-2.0
// MemoryUse: what the op's row says, and whether the result is like the first operand.
#include "passes/memory/memory_use.h"

namespace spmdx {

MemoryUse memory_use(const Call& call) {
  const rules::Row* row = rules::find_row(call.op);
  if (!row) return MemoryUse::fresh;
  const MemoryUse use = row->memory_of ? row->memory_of(call) : row->memory;
  if (use != MemoryUse::in_place) return use;
  // Elsewhere the first argument may be a number, as the base of a power.
  const bool first = row->memory_of || (!call.args.empty() && call.args[0] == Arg(TensorArg{0}));
  const bool alike = first && call.outputs.size() == 1 && call.outputs[0] == call.inputs[0];
  return alike ? MemoryUse::in_place : MemoryUse::fresh;
}

}  // namespace spmdx
