// SPDX-License-Identifier: Apache-2.0
// Types in graph text: the notation of shardings, and the words that may follow it.
#pragma once
#include <utility>

#include "base/cursor.h"
#include "sharding/sharding.h"

namespace spmdx {

// `replicated` after a type says that null is not meant, `number` that it is a wrapped number. Throws ShardingError.
std::pair<TensorType, ShardingRef> read_type(Cursor& cursor, const MeshRef& mesh);

}  // namespace spmdx
