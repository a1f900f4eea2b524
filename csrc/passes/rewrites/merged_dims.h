// SPDX-License-Identifier: Apache-2.0
// Interleaving: a merged dim whose minor part is cut gets an order of rows in which that part comes first.
#pragma once
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// A dim of outer · cut · inner rows, merged of dims of which the middle one is cut. Such a layout has a stride and
// cannot be expressed, so the view that merges (or splits) would gather.
struct Merge {
  int64_t outer = 1, cut = 1, inner = 1;
  bool pieces = false;  // readers take the outer pieces one by one
  bool operator==(const Merge&) const = default;
};

// The merges that block a sharding of a propagated graph, distinct, in program order.
std::vector<Merge> blocked_merges(const Graph& graph);

// The same program, in which such rows are ordered cut · outer · inner between the view that merges them and the one
// that splits them. Ops that treat rows one by one, or sum over them, do not depend on their order. Nothing where some
// op does.
std::optional<Graph> interleave(const Graph& graph, const Merge& merge);

}  // namespace spmdx
