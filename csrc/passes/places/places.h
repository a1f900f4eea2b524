// SPDX-License-Identifier: Apache-2.0
// Places: the pass that says where every value is.
#pragma once
#include <memory>

#include "passes/places/stages_by_time.h"
#include "passes/settings/options.h"

namespace spmdx {

// Gives every value its place, where some have one, and sends what is read elsewhere. Passes before it know no places.
// REQUIRES and ensures: partitioned. The result: how it was placed by time, where it has kinds.
std::shared_ptr<const PlacedStep> place(Graph& graph, const CompileOptions& options);

// Of a step that is placed by time.
Graph with_places(const PlacedStep& step);

}  // namespace spmdx
