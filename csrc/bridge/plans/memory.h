// SPDX-License-Identifier: Apache-2.0
// Memory of plans: who holds it at the worst moment of a step, and an error where it is more than a device has.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "passes/report/memory_kinds.h"
#include "runtime/step/plan.h"

namespace spmdx::bridge {

// Memory of one value, in words.
struct Holder {
  MemoryKind kind;
  std::string op, type;  // what made it, as "aten.mm"; as "f32[64@data, 8]"
  int64_t bytes;
  std::string source;  // the user's line
};

// The largest first, as `use` has them, which is that of the plan's run.
std::vector<Holder> holders_of(const Graph& graph, const MemoryUseOfRun& use);
// What runs at the worst moment: "aten.mm at train.py:41"; empty before and after all ops.
std::string worst_moment(const Graph& graph, const MemoryUseOfRun& use);

// What a device may hold in a step, and whether plans may compute values anew to hold less. Any thread but those that
// hold the locks of the recorder or of planning.
void set_memory_limit(int64_t bytes, std::optional<bool> recompute);
int64_t memory_limit();
// Throws ShardingError where the plan needs more. Plans that are trials may, and those that only move data to where
// annotations want it: what they begin with is there. Holds the recorder's lock.
void require_fits(const Plan& plan);

}  // namespace spmdx::bridge
