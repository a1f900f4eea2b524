// SPDX-License-Identifier: Apache-2.0
// Rows: parts of a dim that are taken to other places, within a device or between devices.
#pragma once
#include "graph/graph.h"

namespace spmdx {

// spmdx.permute_rows(x, dim, sources): part i of a dim becomes part sources[i], or zeros where that is negative. `dim`
// is -1: nothing moves.
struct RowMap {
  int64_t dim = -1;
  std::vector<int64_t> sources;  // as many as the result has
};

// spmdx.halo(x, dim, starts, lengths): part i of the result's dim is the rows [starts[i], starts[i] + lengths[i]) of x,
// and as many rows that nobody reads as the longest part has more.
constexpr std::string_view kHalo = "spmdx.halo";
enum : size_t { kHaloDim = 1, kHaloStarts, kHaloLengths };

// spmdx.take_rows(x, dim, sources, parts): row i of the result's dim, which is as long as `sources`, is row sources[i]
// of x, or zeros where that is negative. Both dims are cut into `parts`, or whole.
constexpr std::string_view kTakeRows = "spmdx.take_rows";

// Of calls by these names, and of the collectives kPermuteRows and kCommHalo; nothing moves in any other call.
RowMap row_map(const Call& call);

// Rows that a device has to be sent, which has the rows `own` and shall have those of the map at `mine`.
int64_t rows_from_elsewhere(const RowMap& rows, const Range& own, const Range& mine);

}  // namespace spmdx
