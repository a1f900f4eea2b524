// SPDX-License-Identifier: Apache-2.0
// Stages by time: where the nodes of a step run that devices of several kinds share.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"
#include "passes/places/stages.h"
#include "passes/places/step_tasks.h"
#include "passes/settings/options.h"

namespace spmdx {

// The step's tasks, and where and when each of them runs by the cost model.
struct PlacedStep {
  Graph graph;
  Stages stages;
  StepTasks tasks;
  TaskAssignment assignment;
  Devices devices;                               // what the tasks are assigned to
  std::vector<std::vector<int64_t>> ns_of_node;  // by node and coordinate
  std::vector<std::string> kinds;                // by coordinate
};

// Which kind the devices at each coordinate of the axis are. Throws ShardingError where they are several, or unknown.
std::vector<uint32_t> kinds_along(const Mesh& mesh, int axis, const DeviceKinds& kinds);

// In the graph of the result, gradients of microbatches are added up where these run, and then with those of others.
// Throws ShardingError for an op that no device runs, and where memory does not hold the step.
// REQUIRES: partitioned, with kinds.
PlacedStep placed_by_time(Graph graph, const CompileOptions& options);

}  // namespace spmdx
