// SPDX-License-Identifier: Apache-2.0
// Actions: which stage's work on which microbatch a node belongs to.
#pragma once
#include <vector>

#include "graph/graph.h"
#include "passes/pipeline/simulate.h"
#include "sharding/topology.h"

namespace spmdx {

struct NodeAction {
  int64_t stage = -1;
  int64_t microbatch = -1;          // -1: none, or all of them; it runs when another needs it, or at the end
  ActionKind kind = ActionKind::F;  // F, I or W; a full backward is both halves
};

struct Actions {
  std::vector<NodeAction> of_node;
  int64_t microbatches = 0;  // 0: the graph has no stages
  int64_t ranks = 0, stages = 0;
  bool backward = false;  // a backward pass is there
};

// A microbatch is what a program does up to the end of a backward pass. Where there is none, each first reading of a
// stage's parameters begins one. A backward op is a W where no other stage waits for it in its microbatch.
// REQUIRES: every value has its place.
Actions actions_of(const Graph& graph);

// By stage: how long the work on a microbatch takes on the average, by the cost model.
std::vector<StageTimes> times_of(const Graph& graph, const Actions& actions, const Topology& topology);
// The same of the microbatch that takes least, as one in the middle of a step: it sums nothing that is summed once.
std::vector<StageTimes> least_times_of(const Graph& graph, const Actions& actions, const Topology& topology);

// What the graph's schedule does at which time, in order. Without a backward pass, stages follow each other as they
// can. Throws ShardingError where it is for other stages or microbatches.
// `send`: what it takes from one stage to another.
Simulation simulate(const Graph& graph, const Actions& actions, const std::vector<StageTimes>& times, double send = 0);
// What a message of a microbatch from stage to stage takes on the average.
double send_ns(const Graph& graph, const Actions& actions, const Topology& topology);

}  // namespace spmdx
