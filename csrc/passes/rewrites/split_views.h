// SPDX-License-Identifier: Apache-2.0
// Chunks: slices that take a dim apart into equal pieces, seen as a dim of pieces.
#pragma once
#include <optional>

#include "graph/graph.h"

namespace spmdx {

// The same program, in which slices of equal pieces of a dim that is cut, before or after, are a view of the dim as
// pieces × rest and a select each. So what holds a part of every piece can be told. Nothing where there are none.
// REQUIRES: propagated.
std::optional<Graph> see_split_views(const Graph& graph);

}  // namespace spmdx
