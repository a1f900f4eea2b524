// SPDX-License-Identifier: Apache-2.0
// Gradient sums: terms that several stages make for one parameter are added up stage by stage.
#pragma once
#include "passes/places/stages.h"

namespace spmdx {

// A sum of terms of backward passes, of which another stage than that of the parameter makes several, becomes a sum on
// each stage and a sum of these: so each stage sends once a step, not once a microbatch. Returns whether there was any;
// stages are to be found anew then. REQUIRES: partitioned.
bool split_gradient_sums(Graph& graph, const Stages& stages);

}  // namespace spmdx
