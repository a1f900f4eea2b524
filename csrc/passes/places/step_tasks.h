// SPDX-License-Identifier: Apache-2.0
// StepTasks: the work of a step that devices of several kinds share, in pieces that are worth a send.
#pragma once
#include <vector>

#include "graph/graph.h"
#include "passes/kinds/search/assign.h"

namespace spmdx {

// A step as tasks: first one for each input that lies on a device, then those that nodes are in, then one for each
// output that is to lie on a device.
struct StepTasks {
  std::vector<Task> tasks;
  std::vector<int64_t> shared;    // bytes of values that several tasks read and that no device has to send
  std::vector<uint32_t> of_node;  // task, by node
};

// What adds gradients of microbatches up waits for all of them, so it is no part of what makes them.
struct SumsOfTasks {
  std::vector<int32_t> of_node;    // by node: of which sum it is a part, negative: of none; empty: there are none
  std::vector<bool> is_sent_free;  // by node: what it reads has no bytes, as it is not known yet how often it is sent
};

// `ns` is by node and device, kNever where the device does not run it; inputs and outputs lie on devices as in
// `input_homes` and `output_homes`, negative: on all of them. Nodes join those that alone read them, or that alone make
// what they read, as long as either takes less than `least_ns`, or there are many; of sums, each is a
// task. REQUIRES: partitioned.
StepTasks tasks_of(const Graph& graph, size_t devices, const std::vector<std::vector<int64_t>>& ns,
                   const std::vector<int32_t>& input_homes, const std::vector<int32_t>& output_homes, int64_t least_ns,
                   const SumsOfTasks& sums = {});

}  // namespace spmdx
