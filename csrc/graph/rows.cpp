// SPDX-License-Identifier: Apache-2.0
// Rows: reads a row map from the arguments of a call.
#include "graph/rows.h"

#include <algorithm>

#include "base/error.h"
#include "graph/args.h"

namespace spmdx {
namespace {

using Ints = std::vector<int64_t>;

Ints halo_sources(const Call& call, int64_t rows) {
  const Ints &starts = list_of_integers(call, kHaloStarts), &lengths = list_of_integers(call, kHaloLengths);
  internal_check(starts.size() == lengths.size() && !starts.empty(), call.op + " has parts without a length");
  const int64_t extent = rows / static_cast<int64_t>(starts.size());
  Ints sources;
  for (size_t i = 0; i < starts.size(); ++i)
    for (int64_t r = 0; r < extent; ++r) sources.push_back(r < lengths[i] ? starts[i] + r : -1);
  return sources;
}

}  // namespace

RowMap row_map(const Call& call) {
  const bool halo = call.op == kHalo || call.op == kCommHalo;
  if (!halo && call.op != kPermuteRows && call.op != kTakeRows && call.op != "spmdx.permute_rows") return {};
  const auto* dim = call.args.size() > 2 ? std::get_if<int64_t>(&call.args[1]) : nullptr;
  internal_check(dim && *dim >= 0 && *dim < static_cast<int64_t>(call.inputs.at(0).shape.size()),
                 call.op + " does not name a dim of its operand");
  const int64_t rows = call.outputs.at(0).shape.at(*dim);
  RowMap map{*dim, halo ? halo_sources(call, rows) : list_of_integers(call, 2)};
  internal_check(static_cast<int64_t>(map.sources.size()) == rows,
                 call.op + " does not name a source for every part of a dim");
  return map;
}

int64_t rows_from_elsewhere(const RowMap& rows, const Range& own, const Range& mine) {
  return std::count_if(rows.sources.begin() + mine.start, rows.sources.begin() + mine.start + mine.extent,
                       [&](int64_t s) { return s >= 0 && (s < own.start || s >= own.start + own.extent); });
}

}  // namespace spmdx
