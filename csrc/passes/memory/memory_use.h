// SPDX-License-Identifier: Apache-2.0
// MemoryUse of a call: whether its result has memory of its own.
#pragma once
#include "rules/rule/row.h"

namespace spmdx {

using rules::MemoryUse;

// As the row of its op says; in_place only where the result is of the first operand's type.
MemoryUse memory_use(const Call& call);

}  // namespace spmdx
