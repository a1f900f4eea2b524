// SPDX-License-Identifier: Apache-2.0
// The end of a graph: what is recorded becomes a graph with outputs and a mesh, which the engine plans.
#pragma once
#include <vector>

#include "bridge/recorder/recorder_state.h"

namespace spmdx::bridge {

struct FinishedGraph {
  Graph graph;
  std::vector<DataRef> data_of_inputs;  // of its inputs, in the same order
  std::vector<RootRef> owners;          // the roots of its outputs, in the same order
  bool more = false;                    // there is annotated data of another mesh, which moves in another step
};

// Both: Holds the recorder's lock.

// Roots of pending values in the order they were recorded, those of each mesh together: values that have nothing to do
// with each other may lie on different meshes. At least one group, perhaps empty.
std::vector<std::vector<RootRef>> pending_by_mesh(const RecorderState& state, const GradientInputs& gradients);

// The recorded graph with the values of `owners` as outputs, and with data that has to move, whose roots join them:
// these hold values of the recorded graph from then on. Throws ShardingError where the annotations have two meshes.
FinishedGraph finish_graph(RecorderState& state, std::vector<RootRef> owners, const GradientInputs& gradients);

}  // namespace spmdx::bridge
