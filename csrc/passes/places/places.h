// SPDX-License-Identifier: Apache-2.0
// Places: the pass that says where every value is.
#pragma once
#include "graph/graph.h"
#include "passes/places/stages_by_time.h"
#include "passes/settings/options.h"

namespace spmdx {

// Gives every value its place, where some have one, and sends what is read elsewhere. Passes before it know no places.
// REQUIRES and ensures: partitioned.
void place(Graph& graph, const CompileOptions& options);

// Its parts, for steps that are placed by time: tensors of other meshes stay where they are until they are read, and
// what is read elsewhere than it was made is sent.
void note_where_inputs_lie(Graph& graph);
Graph with_places(const PlacedStep& step);

}  // namespace spmdx
