// SPDX-License-Identifier: Apache-2.0
// Trial: one way that the rule of an op offers to run it over a mesh, as a program of its own, so that it can be tried.
#pragma once
#include <vector>

#include "passes/passes.h"
#include "passes/strategy/strategy.h"

namespace spmdx {

// A program that runs the call as it lies in this placement, whether a rule offers that or not. Its outputs, which may
// be partial, are the results that the op makes.
Graph laid_out(const CallRef& call, const MeshRef& mesh, const Placement& placement);

// All that the rule of this call offers, as programs of the one node or of what it expands to: on every axis of the
// mesh nothing, a factor that is cut, or operands that stay partial, in every combination. Without the one in which
// nothing is cut.
std::vector<Graph> trials(const CallRef& call, const MeshRef& mesh, const CompileOptions& options);

}  // namespace spmdx
