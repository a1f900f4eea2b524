// SPDX-License-Identifier: Apache-2.0
// MemoryUse: whether the result of an op has memory of its own.
#pragma once
#include "graph/graph.h"

namespace spmdx {

enum class MemoryUse : uint8_t {
  fresh,    // memory of its own
  view,     // that of the first operand
  reshape,  // that of the first operand, if its elements lie in row-major order; else a copy
  in_place  // may be written over the first operand, where nobody reads that any more
};

MemoryUse memory_use(const Call& call);

}  // namespace spmdx
