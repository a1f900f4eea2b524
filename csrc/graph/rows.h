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

// The same two between devices; the atoms that cut the dim stay. Their kind is a collective_permute.
constexpr std::string_view kPermuteRows = "spmdx.comm.permute_rows", kCommHalo = "spmdx.comm.halo";

// Of calls by these four names; nothing moves in any other call.
RowMap row_map(const Call& call);

}  // namespace spmdx
