// SPDX-License-Identifier: Apache-2.0
// Ops that have to do with a part of their first operand alone: what they cost does not depend on how large it is.
#pragma once
#include "graph/graph.h"

namespace spmdx {

// Bytes that a run of a call reads and writes, if it overwrites the first operand where it can.
int64_t touched_bytes(const Call& call);

}  // namespace spmdx
