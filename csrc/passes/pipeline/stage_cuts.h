// SPDX-License-Identifier: Apache-2.0
// Where a chain of layers is cut into the stages of a pipeline, so that a step is short and every stage fits.
//
// Minimises Σ t_s + (m − 1) · max t_s over the stages s and m microbatches, as Alpa does (arXiv:2201.12023,
// section 5.2).
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"

namespace spmdx {

// What a layer costs on the devices of a stage: times in ns and activations for one microbatch, bytes by device.
struct LayerCost {
  int64_t forward_ns = 0, backward_ns = 0;
  int64_t state_bytes = 0;       // parameters, their gradients and the optimizer's state
  int64_t activation_bytes = 0;  // kept from the forward pass of a microbatch to its backward pass
  int64_t send_ns = 0;           // moves what crosses behind the layer, both ways, where a stage ends there
};

struct StageProblem {
  std::vector<LayerCost> layers;
  std::vector<int64_t> in_flight;  // by stage: microbatches whose activations it keeps at most, as the schedule has it
  int64_t microbatches = 1;
  int64_t memory_limit = std::numeric_limits<int64_t>::max();  // bytes of a device
  int64_t chunks = 1;                   // stages that share a device: each has its part of the limit
  std::vector<std::string> names = {};  // of the layers, for messages; empty: they are numbered

  int64_t limit_of_stage() const { return memory_limit / chunks; }
};

struct StageCuts {
  std::vector<size_t> first;           // by stage: its first layer; no stage is empty
  std::vector<int64_t> stage_ns;       // by stage: one microbatch, forward, backward and what it sends on
  std::vector<int64_t> stage_bytes;    // by stage
  int64_t sum_ns = 0, longest_ns = 0;  // of the times of the stages
  int64_t step_ns = 0;                 // Σ t_s + (m − 1) · max t_s
};

// No cut into so many stages fits. Tells of the cut whose fullest stage is the least full: that stage, its layers from
// `first` to `last`, and by how many bytes it passes the limit.
struct StageMemoryError : ShardingError {
  StageMemoryError(const StageProblem& problem, const StageCuts& nearest, size_t stage);
  size_t stage, first, last;
  int64_t bytes_short;
};

// The cuts with the shortest step. Throws ShardingError where there are fewer layers than stages, StageMemoryError
// where nothing fits.
StageCuts choose_stage_cuts(const StageProblem& problem);

}  // namespace spmdx
