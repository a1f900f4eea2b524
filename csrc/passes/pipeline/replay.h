// SPDX-License-Identifier: Apache-2.0
// Replay of a schedule: every rank runs its actions in its order, each as soon as what it waits for has arrived.
#pragma once
#include <functional>
#include <vector>

#include "passes/pipeline/dependencies.h"

namespace spmdx {

struct Replay {
  std::vector<double> start, end;  // of every action; 0 of those that did not run
  std::vector<ActionId> order;     // of those that ran, by start and then by rank: what an action waits for precedes it
  std::vector<ActionId> next;      // of each rank the first that did not run; that of the next rank if all did
};

// Receives block and sends do not: a rank goes on while what it made travels for `send` to another rank.
// REQUIRES: times of at least 0.
Replay replay(const Dependencies& dependencies, const std::function<double(const PlacedAction&)>& duration,
              double send);

}  // namespace spmdx
