// SPDX-License-Identifier: Apache-2.0
// The notation of sharded types: f32[64@data, 128@(model,seq)]{partial sum: expert} on pipe=1.
#pragma once
#include <string>
#include <string_view>
#include <utility>

#include "base/cursor.h"
#include "sharding/sharding.h"

namespace spmdx {

// "f32[64@data, 128@(model,seq), 7]{partial sum: expert} on pipe=1"; null sharding prints the type alone.
// A tile g ≠ 1 prints as "128@data/g". Parts of axes as "128@model:(1)2".
std::string str(const TensorType& type, const ShardingRef& sharding);
// Parses what str prints, from `text` at `pos` (moved past it). Throws ShardingError.
std::pair<TensorType, ShardingRef> parse_type(Cursor& cursor, const MeshRef& mesh);
std::pair<TensorType, ShardingRef> parse_type(std::string_view text, size_t& pos, const MeshRef& mesh);

}  // namespace spmdx
