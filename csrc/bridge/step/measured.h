// SPDX-License-Identifier: Apache-2.0
// Measured: how long steps, ops and collectives took.
#pragma once
#include <vector>

#include "runtime/data/observer.h"
#include "runtime/step/plan.h"

namespace spmdx::bridge {

enum class MeasuredKind : uint8_t { step, node, wait };

// Times are nanoseconds of one clock.
struct MeasuredRange {
  MeasuredKind kind = MeasuredKind::node;
  size_t step = 0;  // index into Measured::steps
  NodeId node = 0;
  int64_t begin_ns = 0, end_ns = 0;
  int64_t longest_ns = 0;  // of its shards, one of which a device computes
  int64_t shards = 0;
};

struct Measured {
  std::vector<PlanRef> steps;         // their plans, in the order in which they ran
  std::vector<MeasuredRange> ranges;  // by their ends
};

// The observer that takes times. Any thread.
Observer& measuring();
// What it took since the last call. REQUIRES: no step runs that it watches. Any thread.
Measured take_measured();

}  // namespace spmdx::bridge
