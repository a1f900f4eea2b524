// SPDX-License-Identifier: Apache-2.0
// Rows that go to other places between the devices of one process.
#pragma once
#include "graph/rows.h"
#include "runtime/backend.h"

namespace spmdx {

// The shards of the value of which these are the rows, laid out as `to`. Shards that come whole are shared.
Shards permute_rows(Backend& backend, const TensorType& type, const Shards& shards, ShardingRef from, ShardingRef to,
                    const RowMap& rows);

}  // namespace spmdx
