// SPDX-License-Identifier: Apache-2.0
// Types in graph text: the notation of sharded types, and the words that may follow them.
#pragma once
#include <utility>

#include "base/cursor.h"
#include "sharding/sharding.h"

namespace spmdx {

// Reads a type with its sharding; null where the text has no axes. After the type, the word `replicated` stands for a
// sharding that cuts nothing, and `number` for a wrapped number. Throws ShardingError.
std::pair<TensorType, ShardingRef> read_type(Cursor& cursor, const MeshRef& mesh);

}  // namespace spmdx
