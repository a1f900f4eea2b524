// SPDX-License-Identifier: Apache-2.0
// A* over reshard states. A direct exchange is tried where it can win: at the start, and after a reduction.
#include "sharding/reshard/search.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace spmdx {
namespace {

constexpr size_t kMaxStates = 4000;  // expanded in one search

struct Visit {
  ReshardStep step;  // the step that led here; step.to is the state
  int64_t cost = 0;
  int64_t rest = 0;  // the least that the rest of the way can cost
  int moves = 0;
  int parent = -1;
  bool done = false;
};

class Search {
 public:
  Search(const ReshardSpace& space, const Topology& topology, const std::vector<uint8_t>& levels, ReshardLimits limits)
      : space_(space), topology_(topology), levels_(levels), limits_(limits) {
    for (const Level& level : topology.levels) {
      least_latency_ = std::min(least_latency_, level.latency_ns);
      least_rate_ = std::min(least_rate_, level.picoseconds_per_byte);
    }
    const double share = topology.least_share();
    if (share == 1) return;
    least_latency_ = static_cast<int64_t>(share * static_cast<double>(least_latency_));
    least_rate_ = static_cast<int64_t>(share * static_cast<double>(least_rate_));
  }

  std::optional<ReshardChain> run() {
    visits_.push_back({{Collective::slice, 0, 0, 1, space_.start()}, 0, 0, 0, -1, false});
    index_.emplace(key(space_.start()), 0);
    queue_.push({0, 0, 0});
    for (size_t expanded = 0; !queue_.empty() && expanded < kMaxStates;) {
      const int at = std::get<2>(queue_.top());
      queue_.pop();
      if (std::exchange(visits_[at].done, true)) continue;
      if (visits_[at].step.to == space_.goal()) return ReshardChain{trace(at), visits_[at].cost};
      ++expanded;
      expand(at);
    }
    return std::nullopt;
  }

 private:
  using Entry = std::tuple<int64_t, int, int>;  // (cost + rest, moves, index): the smallest first

  void expand(int at) {
    const ReshardState state = visits_[at].step.to;  // a copy: visits grow below
    const ReshardAsk ask{visits_[at].cost + least_latency_ <= limits_.cost_ns,
                         visits_[at].parent < 0 || traits_of(visits_[at].step.kind).reduces};
    space_.steps(state, ask, [this, at](ReshardStep step) { relax(at, std::move(step)); });
  }

  // A lower bound of the cost from `state` to the goal.
  int64_t least_rest(const ReshardState& state) const {
    const int64_t bytes = space_.least_bytes(state);
    return bytes == 0 ? 0 : least_latency_ + bytes * least_rate_ / 1000;
  }

  // A state may be reached anew, at less cost, after it was expanded: then it is expanded again.
  void relax(int at, ReshardStep step) {
    const int64_t total = visits_[at].cost + cost_ns(step, space_.mesh(), topology_, levels_);
    if (total > limits_.cost_ns) return;
    const int moves = visits_[at].moves + 1;
    const bool arrives = step.to == space_.goal();
    if (arrives)
      limits_.cost_ns = total;
    else if (space_.local_bytes(step.to) > limits_.bytes)
      return;
    const auto [entry, added] = index_.try_emplace(key(step.to), static_cast<int>(visits_.size()));
    const int next = entry->second;
    if (!added && std::tie(visits_[next].cost, visits_[next].moves) <= std::tie(total, moves)) return;
    const int64_t rest = !added ? visits_[next].rest : arrives ? 0 : least_rest(step.to);
    Visit visit{std::move(step), total, rest, moves, at, total + rest > limits_.cost_ns};
    const bool hopeless = visit.done;
    if (added)
      visits_.push_back(std::move(visit));
    else
      visits_[next] = std::move(visit);
    if (!hopeless) queue_.push({total + rest, moves, next});
  }

  std::vector<ReshardStep> trace(int at) {
    std::vector<ReshardStep> steps;
    for (; visits_[at].parent >= 0; at = visits_[at].parent) steps.push_back(std::move(visits_[at].step));
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

  const ReshardSpace& space_;
  const Topology& topology_;
  const std::vector<uint8_t>& levels_;
  ReshardLimits limits_;
  int64_t least_latency_ = INT64_MAX, least_rate_ = INT64_MAX;
  std::vector<Visit> visits_;
  std::unordered_map<std::string, int> index_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

}  // namespace

int64_t cost_ns(const ReshardStep& step, const Mesh& mesh, const Topology& topology,
                const std::vector<uint8_t>& levels) {
  const bool of_peers = traits_of(step.kind).rounds == Rounds::peers;  // it may have fewer than the sub-axes
  return topology.cost_ns(
      step.kind, step.bytes,
      of_peers ? Group(step.group, level_of(levels, step.sub_axes)) : group_of(mesh, levels, step.sub_axes));
}

std::optional<ReshardChain> search(const ReshardSpace& space, const Topology& topology,
                                   const std::vector<uint8_t>& levels, ReshardLimits limits) {
  return Search(space, topology, levels, limits).run();
}

}  // namespace spmdx
