// SPDX-License-Identifier: Apache-2.0
// Rows: ops that move rows along a dim, within a device or between devices, described by the source of each row.
#pragma once
#include "graph/graph.h"

namespace spmdx {

// What spmdx.permute_rows(x, dim, sources) does: row i of the result along `dim` is row sources[i] of x, or zeros where
// that is negative.
struct RowMap {
  int64_t dim = -1;              // -1: no rows move
  std::vector<int64_t> sources;  // one per row of the result
};

// spmdx.halo(x, dim, starts, lengths): part i of the result's dim has the rows [starts[i], starts[i] + lengths[i]) of
// x, and then rows that nobody reads, so that all parts are as long as the longest.
constexpr std::string_view kHalo = "spmdx.halo";
enum : size_t { kHaloDim = 1, kHaloStarts, kHaloLengths };

// spmdx.take_rows(x, dim, sources, parts): row i of the result is row sources[i] of x, or zeros where that is negative.
// The dim may have another size in the result; in both tensors it is cut into `parts` parts, or not at all.
constexpr std::string_view kTakeRows = "spmdx.take_rows";

// The row map of a call of these three ops, or of the collectives kPermuteRows and kCommHalo. For any other call its
// dim is -1. Throws InternalError where the arguments contradict each other.
RowMap row_map(const Call& call);

// How many rows a device must receive that holds the rows `own` of x and is to hold the rows `mine` of the result.
int64_t rows_from_elsewhere(const RowMap& rows, const Range& own, const Range& mine);

}  // namespace spmdx
