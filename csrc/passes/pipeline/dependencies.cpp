// SPDX-License-Identifier: Apache-2.0
// Finds the actions that an action waits for by stage, microbatch and what they make.
#include "passes/pipeline/dependencies.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace spmdx {
namespace {

// What actions make of a stage and a microbatch.
enum class Made : uint64_t { activation, input_gradient, weight_gradient };

Made first_made(ActionKind kind) {
  if (kind == ActionKind::F) return Made::activation;
  return kind == ActionKind::W ? Made::weight_gradient : Made::input_gradient;
}

uint64_t key(const Action& action, Made made) {
  const uint64_t chunk = action.chunk;
  return (chunk * kMostCounted + action.microbatch) * 3 + static_cast<uint64_t>(made);
}

// What a rank makes, and by which action; sorted.
using Makers = std::vector<std::pair<uint64_t, ActionId>>;

[[noreturn]] void refuse(const PlacedAction& second, const PlacedAction& first) {
  const std::string position = std::to_string(first.position), earlier = str(first.action);
  if (first.action == second.action)
    throw ShardingError(where(second) + " runs a second time, after position " + position +
                        ". Expected every action once. Remove one of the two.");
  throw ShardingError(where(second) + " repeats a part of '" + earlier + "' at position " + position +
                      ". Expected a backward B, or its halves I and W. Remove the B, or the halves.");
}

// Of the actions of one rank.
Makers makers_of(const std::vector<PlacedAction>& actions, ActionId begin, ActionId end) {
  Makers makers;
  for (ActionId id = begin; id < end; ++id) {
    const Action& action = actions[id].action;
    makers.emplace_back(key(action, first_made(action.kind)), id);
    if (action.kind == ActionKind::B) makers.emplace_back(key(action, Made::weight_gradient), id);
  }
  std::ranges::sort(makers);
  const auto twice = std::ranges::adjacent_find(makers, {}, &Makers::value_type::first);
  if (twice != makers.end()) refuse(actions[(twice + 1)->second], actions[twice->second]);
  return makers;
}

ActionId find(const Makers& makers, const Action& action) {
  const uint64_t wanted = key(action, first_made(action.kind));
  const auto found = std::ranges::lower_bound(makers, wanted, {}, &Makers::value_type::first);
  return found != makers.end() && found->first == wanted ? found->second : kAbsent;
}

}  // namespace

std::string where(const PlacedAction& placed) {
  return "rank " + std::to_string(placed.rank) + ", position " + std::to_string(placed.position) + ": '" +
         str(placed.action) + "'";
}

std::optional<PlacedAction> Dependencies::need(const PlacedAction& placed, int index) const {
  const ActionKind kind = placed.action.kind;
  const bool is_backward = kind == ActionKind::B || kind == ActionKind::I;
  const int64_t own = stage(placed), behind = own + 1, before = own - 1;
  const auto at = [&](int64_t stage, ActionKind maker) -> std::optional<PlacedAction> {
    if (stage < 0 || stage >= num_stages) return std::nullopt;
    const auto chunk = static_cast<int32_t>(stage / num_ranks());
    return PlacedAction{{maker, chunk, placed.action.microbatch}, static_cast<int32_t>(stage % num_ranks())};
  };
  if (index == 1) return is_backward ? at(behind, kind) : std::nullopt;
  if (is_backward) return at(own, ActionKind::F);
  return kind == ActionKind::F ? at(before, ActionKind::F) : at(own, ActionKind::I);
}

Dependencies::Dependencies(const Schedule& schedule)
    : first(schedule.ranks.size() + 1), num_stages(schedule.num_stages()) {
  actions.reserve(schedule.num_actions());
  std::vector<Makers> makers(schedule.ranks.size());
  for (int32_t rank = 0; rank < num_ranks(); ++rank) {
    for (const Action& action : schedule.ranks[rank])
      actions.push_back({action, rank, static_cast<int32_t>(actions.size()) - first[rank]});
    first[rank + 1] = static_cast<ActionId>(actions.size());
    makers[rank] = makers_of(actions, first[rank], first[rank + 1]);
  }
  for (PlacedAction& placed : actions)
    for (int i = 0; i < 2; ++i)
      if (const auto needed = need(placed, i)) placed.needs[i] = find(makers[needed->rank], needed->action);
}

}  // namespace spmdx
