// SPDX-License-Identifier: Apache-2.0
// Trial: one way that the rule of an op offers to run it over a mesh, as a program of its own, so that it can be tried.
#pragma once
#include <vector>

#include "passes/passes.h"
#include "passes/strategy/strategy.h"

namespace spmdx {

// A program that runs the call with these shardings, whether a rule offers that or not. Its outputs, which may be
// partial, are the results that the op makes.
Graph laid_out(const CallRef& call, const MeshRef& mesh, const Placement& placement);

// All that the rule of this call offers, as programs of the one node or of its expansion. Each axis of the mesh cuts
// nothing, cuts a factor, or leaves operands partial, in every combination but the one in which nothing is cut.
std::vector<Graph> trials(const CallRef& call, const MeshRef& mesh, const CompileOptions& options);

}  // namespace spmdx
