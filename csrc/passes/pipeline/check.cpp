// SPDX-License-Identifier: Apache-2.0
// Runs a schedule without times; where ranks are left waiting, follows one of them to what holds it up.
#include "passes/pipeline/check.h"

#include <algorithm>

#include "base/error.h"

namespace spmdx {
namespace {

std::string quoted(const Action& action) { return "'" + str(action) + "'"; }
std::string at_position(const PlacedAction& placed) { return " at position " + std::to_string(placed.position); }

// Of what lacks its forward and of what the stage behind should give it, the first is more likely to be what is wrong.
void require_what_is_waited_for(const Dependencies& all) {
  for (const int index : {0, 1})
    for (const PlacedAction& placed : all.actions) {
      if (placed.needs[index] != kAbsent) continue;
      const PlacedAction absent = *all.need(placed, index);
      const std::string needed = quoted(absent.action), of_rank = "rank " + std::to_string(absent.rank);
      throw ShardingError(where(placed) + " waits for " + needed + " of " + of_rank +
                          ", which is not in the table. Expected each microbatch on every stage. Add " + needed +
                          " to " + of_rank + ", or remove " + quoted(placed.action) + ".");
    }
}

// Ranks that do not come to their end though the table has all that they wait for.
class Stuck {
 public:
  Stuck(const Dependencies& dependencies, const Replay& run) : all_(dependencies), run_(run) {}

  // Goes from a rank to the one that it waits for, until one waits for itself or for one of before.
  [[noreturn]] void explain(int32_t rank) {
    std::vector<int32_t> waited;
    while (std::ranges::find(waited, rank) == waited.end()) {
      waited.push_back(rank);
      rank = rank_waited_for(rank);
    }
    waited.erase(waited.begin(), std::ranges::find(waited, rank));
    explain_circle(waited);
  }

 private:
  const PlacedAction& next(int32_t rank) const { return all_.actions[run_.next[rank]]; }

  // That of what the rank's next action needs and has not run. Refuses the action if it is its own.
  int32_t rank_waited_for(int32_t rank) {
    const PlacedAction& held_up = next(rank);
    for (const ActionId need : held_up.needs) {
      if (need == kNoAction || need < run_.next[all_.actions[need].rank]) continue;
      if (all_.actions[need].rank == rank) refuse_late(held_up, all_.actions[need]);
      return all_.actions[need].rank;
    }
    throw InternalError("an action waits for nothing and does not run");
  }

  [[noreturn]] void refuse_late(const PlacedAction& held_up, const PlacedAction& late) {
    const std::string needed = quoted(late.action), own = quoted(held_up.action);
    throw ShardingError(where(held_up) + " waits for " + needed + at_position(late) +
                        " of the same rank. Expected it before. Move " + needed + " in front of " + own + ".");
  }

  // `ranks` wait for each other, each for the next one.
  [[noreturn]] void explain_circle(const std::vector<int32_t>& ranks) {
    std::string text = where(next(ranks[0]));
    for (size_t i = 0; i < ranks.size(); ++i) {
      const PlacedAction& held_up = next(ranks[i]);
      const int32_t other = ranks[(i + 1) % ranks.size()];
      const auto is_of_other = [&](ActionId need) { return need >= 0 && all_.actions[need].rank == other; };
      const ActionId waited = *std::ranges::find_if(held_up.needs, is_of_other);
      text += (i > 0 ? "; " + quoted(held_up.action) : "") + " waits for " + quoted(all_.actions[waited].action) +
              at_position(all_.actions[waited]) + " of rank " + std::to_string(other);
      if (waited != run_.next[other]) text += ", behind " + quoted(next(other).action) + at_position(next(other));
    }
    throw ShardingError(text +
                        ": a circular wait. Expected an order in which some rank can always go on. Move one of "
                        "these actions in front of what it is behind.");
  }

  const Dependencies& all_;
  const Replay& run_;
};

// Where all can run, what is missing is nothing that others wait for.
void require_backwards(const Dependencies& all) {
  std::vector<bool> is_needed(all.actions.size());  // by the backward of its stage
  for (const PlacedAction& placed : all.actions)
    if (placed.action.kind != ActionKind::F) is_needed[placed.needs[0]] = true;
  for (ActionId id = 0; id < static_cast<ActionId>(all.actions.size()); ++id) {
    const PlacedAction& placed = all.actions[id];
    const auto [kind, chunk, microbatch] = placed.action;
    if (is_needed[id] || kind == ActionKind::B || kind == ActionKind::W) continue;
    const ActionKind follows = kind == ActionKind::F ? ActionKind::B : ActionKind::W;
    const std::string lacks = quoted({follows, chunk, microbatch});
    throw ShardingError(where(placed) + " has no " + lacks + " in the table. Expected " +
                        (kind == ActionKind::F ? "a backward, whole or in halves" : "both halves of the backward") +
                        ". Add " + lacks + " to rank " + std::to_string(placed.rank) + ".");
  }
}

// Microbatches are then the same ones on all stages.
void require_all_microbatches(const Dependencies& all) {
  const auto is_first = [&](const PlacedAction& a) { return a.action.kind == ActionKind::F && all.stage(a) == 0; };
  const int64_t count = std::ranges::count_if(all.actions, is_first);
  for (const PlacedAction& placed : all.actions)
    if (const int32_t number = placed.action.microbatch; number >= count)
      throw ShardingError(where(placed) + " is of microbatch " + std::to_string(number) + ", and there are " +
                          std::to_string(count) + ". Expected numbers from 0 without a gap. Number them 0 to " +
                          std::to_string(count - 1) + ".");
}

}  // namespace

void require_complete(const Dependencies& all, const Replay& run) {
  if (all.actions.empty())
    throw ShardingError(
        "the schedule has no actions. Expected a line of them for each rank. Write 'F0 B0' for one rank "
        "and one microbatch.");
  require_what_is_waited_for(all);
  for (int32_t rank = 0; rank < all.num_ranks(); ++rank)
    if (run.next[rank] < all.first[rank + 1]) Stuck(all, run).explain(rank);
  require_backwards(all);
  require_all_microbatches(all);
}

void check_schedule(const Schedule& schedule) {
  const Dependencies all(schedule);
  require_complete(all, replay(all, [](const PlacedAction&) { return 1.0; }, 0));
}

}  // namespace spmdx
