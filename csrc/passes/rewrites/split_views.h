// SPDX-License-Identifier: Apache-2.0
// Split views: slices of equal pieces of a dim become a view with a dim of pieces.
#pragma once
#include <optional>

#include "graph/graph.h"

namespace spmdx {

// The same program with each such slice as a select of a view, which splits the dim into pieces × rest, where the dim
// is cut before or after. A sharding can then say that a device holds a part of every piece. Nothing where there are no
// such slices. REQUIRES: propagated.
std::optional<Graph> see_split_views(const Graph& graph);

}  // namespace spmdx
