// SPDX-License-Identifier: Apache-2.0
// Rows: a merged dim whose minor part is cut, put into an order in which that part comes first.
#pragma once
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// A dim of outer · cut · inner rows, merged of dims of which the middle one is cut. Such a layout has a stride and
// cannot be expressed, so the view that merges (or splits) would gather.
struct Merge {
  int64_t outer = 1, cut = 1, inner = 1;
  bool operator==(const Merge&) const = default;
};

// The merges that the shardings of a propagated graph run into, distinct, in program order.
std::vector<Merge> blocked_merges(const Graph& graph);

// The same program, in which such rows are ordered cut · outer · inner between the view that merges them and the one
// that splits them. What works on rows one by one, or sums over them, does not see their order. Nothing where that
// cannot be done.
std::optional<Graph> interleave(const Graph& graph, const Merge& merge);

}  // namespace spmdx
