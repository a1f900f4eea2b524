// SPDX-License-Identifier: Apache-2.0
// Dependencies of a schedule's actions: which other actions each of them waits for.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "passes/pipeline/schedule.h"

namespace spmdx {

using ActionId = int32_t;           // the number of an action, counted rank by rank
constexpr ActionId kNoAction = -1;  // waits for nothing
constexpr ActionId kAbsent = -2;    // waits for what the table lacks

struct PlacedAction {
  Action action;
  int32_t rank = 0;
  int32_t position = 0;                                    // in its rank's order
  std::array<ActionId, 2> needs = {kNoAction, kNoAction};  // besides the action before it
};

struct Dependencies {
  std::vector<PlacedAction> actions;
  std::vector<ActionId> first;  // of each rank, and the number of all
  int64_t num_stages = 0;

  // Throws ShardingError where an action is there twice.
  explicit Dependencies(const Schedule& schedule);

  int64_t num_ranks() const { return static_cast<int64_t>(first.size()) - 1; }
  int64_t stage(const PlacedAction& placed) const { return placed.action.chunk * num_ranks() + placed.rank; }
  // What an action waits for, without its position: a forward for that of the stage before; a backward for its forward,
  // and for the backward of the stage behind; a weight gradient for that of the input.
  std::optional<PlacedAction> need(const PlacedAction& placed, int index) const;
};

std::string where(const PlacedAction& placed);  // "rank 0, position 3: 'F2'"

}  // namespace spmdx
