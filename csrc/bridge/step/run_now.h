// SPDX-License-Identifier: Apache-2.0
// A graph that is no step: it runs at once, in this process alone.
#pragma once
#include <vector>

#include "runtime/step/executor.h"

namespace spmdx::bridge {

// Runs a graph on the calling thread and returns its outputs. No plan is looked for or kept, and nothing is counted.
// Throws what a kernel threw, as `translate` has it. Program threads, with or without the recorder's lock. Gives up the
// GIL.
std::vector<Shards> run_now(const Graph& graph, const std::vector<DataRef>& inputs, const std::vector<Param>& params,
                            const ErrorTranslator& translate);

}  // namespace spmdx::bridge
