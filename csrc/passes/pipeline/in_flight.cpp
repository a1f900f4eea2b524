// SPDX-License-Identifier: Apache-2.0
// In flight: each rank runs its actions in their order, so that no times are needed.
#include "passes/pipeline/in_flight.h"

#include <algorithm>

namespace spmdx {
namespace {

// What an action adds to the activations of its stage. The first half of a backward pass keeps those of the second.
int64_t added(ActionKind kind) {
  if (kind == ActionKind::F) return 1;
  return kind == ActionKind::I ? 0 : -1;
}

}  // namespace

std::vector<int64_t> in_flight_of_stages(const Schedule& schedule) {
  std::vector<int64_t> now(static_cast<size_t>(schedule.num_stages()), 0), most = now;
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (const Action& action : schedule.ranks[rank]) {
      const size_t stage = static_cast<size_t>(action.chunk) * schedule.ranks.size() + rank;
      now[stage] += added(action.kind);
      most[stage] = std::max(most[stage], now[stage]);
    }
  }
  return most;
}

}  // namespace spmdx
