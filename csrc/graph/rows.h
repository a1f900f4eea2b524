// SPDX-License-Identifier: Apache-2.0
// Rows: parts of a dim that change places, within a device or between devices.
#pragma once
#include "graph/graph.h"

namespace spmdx {

// spmdx.permute_rows(x, dim, sources): part i of a dim becomes part sources[i], or zeros where that is negative. `dim`
// is -1: nothing moves.
struct RowMap {
  int64_t dim = -1;
  std::vector<int64_t> sources;
};

// The same between devices; the sharding stays. Its kind is a collective_permute.
constexpr std::string_view kPermuteRows = "spmdx.comm.permute_rows";

// Of a permute_rows of either name; nothing moves in any other call.
RowMap row_map(const Call& call);

}  // namespace spmdx
