// SPDX-License-Identifier: Apache-2.0
// Lower permutes: nodes that take parts of a cut dim from other devices become collectives.
#pragma once
#include "graph/graph.h"

namespace spmdx {

// REQUIRES: a partitioned graph. Every spmdx.permute_rows whose dim is cut becomes a spmdx.comm.permute_rows, every
// spmdx.halo for which rows come from elsewhere a spmdx.comm.halo; every spmdx.read_range of a dim that is not cut an
// aten.slice.
void lower_permutes(Graph& graph);

}  // namespace spmdx
