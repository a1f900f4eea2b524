// SPDX-License-Identifier: Apache-2.0
// Pipeline: what the stages of a plan hold, do and send, and when.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "passes/places/actions.h"

namespace spmdx {

struct StageSummary {
  int64_t parameter_bytes = 0;             // of inputs that lie there from step to step, on each of its devices
  double forward_ns = 0, backward_ns = 0;  // of one microbatch, on the average
  int64_t in_flight = 0;                   // activations of microbatches that it keeps at most
};

// What one device of a stage sends in a step to each of another stage.
struct StageSend {
  int64_t from = 0, to = 0;
  int64_t bytes = 0, count = 0;
  SourceId source = 0;  // of the value that is sent
};

struct PipelineSummary {
  std::string schedule;
  int64_t microbatches = 0;
  std::vector<StageSummary> stages;
  std::vector<StageSend> sends;  // those of one line as one
  Simulation simulation;         // in ns
};

// Nothing where the plan has no stages. REQUIRES: a compiled graph.
std::optional<PipelineSummary> summarise_pipeline(const Graph& graph, const Topology& topology);
// How much longer the schedule takes with so many microbatches than with those of the plan, each as long as the
// shortest of these, beside which nothing is done that is done once; 0 without stages. REQUIRES: a compiled graph.
int64_t longer_ns(const Graph& graph, const Topology& topology, int64_t microbatches);

}  // namespace spmdx
