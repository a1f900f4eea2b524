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

// All: Holds the recorder's lock.

// Roots of pending values in the order they were recorded, those of each mesh together: values that have nothing to do
// with each other may lie on different meshes. At least one group, perhaps empty.
std::vector<std::vector<RootRef>> pending_by_mesh(const RecorderState& state, const GradientInputs& gradients);

// The recorded graph with the values of `owners` as outputs, and with data that has to move, whose roots join them:
// these hold values of the recorded graph from then on. Throws ShardingError where the annotations have two meshes.
FinishedGraph finish_graph(RecorderState& state, std::vector<RootRef> owners, const GradientInputs& gradients);

// The parts of that, for who asks for other values. REQUIRES: the value of the root is pending.
Output output_of(const RecorderState& state, const Root& root, const GradientInputs& gradients);
// The one mesh of the annotations on values that the outputs need, or else on inputs that the outputs lie like, or else
// of the data that they need; null: none. Throws ShardingError where the annotations have two.
MeshRef mesh_of(const RecorderState& state, const std::vector<Output>& outputs, const std::vector<bool>& needed);

}  // namespace spmdx::bridge
