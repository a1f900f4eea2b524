// SPDX-License-Identifier: Apache-2.0
// Rows that change places between the devices of one process.
#pragma once
#include "graph/rows.h"
#include "runtime/backend.h"

namespace spmdx {

// The shards of the value whose rows have changed places, in the same layout. Shards that come whole are shared.
Shards permute_rows(Backend& backend, const TensorType& type, const Shards& shards, ShardingRef layout,
                    const RowMap& rows);

}  // namespace spmdx
