// SPDX-License-Identifier: Apache-2.0
// Estimate: what a step would take under a parallelism, from what parts of the model cost when planned alone.
#pragma once
#include <span>

#include "passes/parallelism/parallelism.h"
#include "sharding/topology.h"

namespace spmdx {

// A part of a model on one of the devices of "model": times in ns and bytes.
struct PartCost {
  int64_t forward_ns = 0, backward_ns = 0;  // of a microbatch
  int64_t wire_bytes = 0;                   // of both, that the device receives along "model"
  int64_t activation_bytes = 0;             // kept from the forward to the backward pass of a microbatch
  int64_t transient_bytes = 0;              // besides, at the worst moment of its own passes
  int64_t output_bytes = 0;                 // read by the part behind it
  int64_t parameter_bytes = 0, gradient_bytes = 0, state_bytes = 0;  // the last: of the optimizer
  int64_t fixed_bytes = 0;                                           // buffers, and parameters that do not learn
  int64_t accumulate_ns = 0;  // of a microbatch's gradients to those of the ones before
  int64_t update_ns = 0;      // of the optimizer
  int64_t ops = 0;            // that take time: of both passes of a microbatch
  int64_t accumulate_ops = 0, update_ops = 0;
};

// The parts in the order in which they run; each may be several times in it.
struct ModelCost {
  std::vector<PartCost> parts;
  std::vector<size_t> order;
};

struct Estimate {
  int64_t step_ns = 0;
  int64_t peak_bytes = 0;     // of the fullest device
  int64_t wire_bytes = 0;     // that a device of the busiest rank receives
  int64_t recomputed_ns = 0;  // of the step, in the stage that computes most again
  int64_t short_bytes = 0;    // that the fullest device lacks, though it computes all again; 0: it fits
  std::vector<size_t> first;  // by stage of the pipeline: its first part
};

// By the schedule's simulation, sums of gradients beside the last backward pass, and the update. Where stages do not
// fit `memory_limit` (0: none), a share of their activations is computed again. REQUIRES: `cost` is of the model axis
// and of the samples that a device has of a microbatch.
Estimate estimate(const Parallelism& parallelism, const ModelCost& cost, const Topology& topology,
                  int64_t memory_limit);

}  // namespace spmdx
