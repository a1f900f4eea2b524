// SPDX-License-Identifier: Apache-2.0
// The reshard planner: Dijkstra over layouts, a bounded search first, and a table of plans made before.
#include "sharding/reshard.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "sharding/reshard_space.h"

namespace spmdx {
namespace {

constexpr size_t kMaxStates = 4000;    // expanded in one search
constexpr size_t kMaxSingleAtoms = 4;  // so many atoms move one by one; more of them move in units

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

struct Visit {
  Step step;  // that led here; step.to is the layout
  int64_t cost = 0;
  int moves = 0;
  int parent = -1;
  bool done = false;
};

struct Found {
  std::vector<Step> steps;
  int64_t cost = 0;
};

std::vector<Step> trace(std::vector<Visit>& visits, int at) {
  std::vector<Step> steps;
  for (; visits[at].parent >= 0; at = visits[at].parent) steps.push_back(std::move(visits[at].step));
  std::reverse(steps.begin(), steps.end());
  return steps;
}

// The cheapest chain of moves of at most `limit` ns, the shortest among equals, the first generated among those. Empty
// where there is none or the search grew too large.
std::optional<Found> search(const ReshardSpace& space, const Topology& topology, bool direct, int64_t limit) {
  using Entry = std::tuple<int64_t, int, int>;  // cost, moves, index: the smallest first
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  std::vector<Visit> visits;
  std::unordered_map<std::string, int> index;
  visits.push_back({{Collective::slice, 0, 0, space.start()}, 0, 0, -1, false});
  index.emplace(key(space.start()), 0);
  queue.push({0, 0, 0});
  const std::string goal = key(space.goal());
  for (size_t expanded = 0; !queue.empty() && expanded < kMaxStates;) {
    const auto [cost, moves, at] = queue.top();
    queue.pop();
    if (std::exchange(visits[at].done, true)) continue;
    const Layout layout = visits[at].step.to;  // a copy: visits grows below
    if (key(layout) == goal) return Found{trace(visits, at), cost};
    ++expanded;
    const Emit relax = [&, cost = cost, moves = moves, at = at](Step step) {
      const int64_t total = cost + topology.cost_ns(step.kind, step.bytes);
      if (total > limit) return;
      if (step.to == space.goal()) limit = total;
      const auto [entry, added] = index.try_emplace(key(step.to), static_cast<int>(visits.size()));
      const int next = entry->second;
      if (!added && std::tie(visits[next].cost, visits[next].moves) <= std::make_tuple(total, moves + 1)) return;
      Visit visit{std::move(step), total, moves + 1, at, false};
      if (added)
        visits.push_back(std::move(visit));
      else
        visits[next] = std::move(visit);
      queue.push({total, moves + 1, next});
    };
    space.steps(layout, direct, relax);
  }
  return std::nullopt;
}

// What reducing, gathering everything and slicing would cost: no plan may cost more.
int64_t replicate_cost(int64_t itemsize, const Shape& shape, const Sharding& from, const Sharding& to,
                       const Topology& topology) {
  const Mesh& mesh = *from.mesh;
  int64_t cost = 0;
  if (from.partial != 0 && (from.partial != to.partial || from.reduction != to.reduction)) {
    const int64_t local = max_local_numel(from, shape) * itemsize;
    const int64_t group = mesh.group_size(from.partial);
    cost += topology.cost_ns(Collective::all_reduce, wire_bytes(Collective::all_reduce, local, group));
  }
  const int64_t parts = mesh.group_size(from.dim_atoms());
  return cost +
         topology.cost_ns(Collective::all_gather, wire_bytes(Collective::all_gather, numel(shape) * itemsize, parts));
}

bool has_granule(const Sharding& sharding) {
  return std::any_of(sharding.dims.begin(), sharding.dims.end(), [](const auto& dim) { return dim.granule != 1; });
}

Found find(int64_t itemsize, const Shape& shape, const Sharding& from, const Sharding& to, const Topology& topology) {
  const Scope scope = atom_list(from.used() | to.used()).size() <= kMaxSingleAtoms ? Scope::atoms : Scope::units;
  const ReshardSpace space(itemsize, shape, from, to, scope);
  const bool direct = has_granule(from) || has_granule(to);
  const int64_t limit = replicate_cost(itemsize, shape, from, to, topology);
  std::optional<Found> found = search(space, topology, direct, limit);
  if (found) return *found;
  // Nothing as good as replicating, or too large a space. Moves straight to the goal are few in any space: these alone
  // (the normal form), or after them the exchange of the missing boxes, which is never more than replicating.
  const ReshardSpace towards(itemsize, shape, from, to, Scope::towards);
  const auto consider = [&](std::optional<Found> other) {
    if (other && (!found || other->cost < found->cost)) found = std::move(other);
  };
  consider(search(towards, topology, false, kNoLimit));
  if (found && found->cost <= limit) return *found;
  consider(search(towards, topology, true, kNoLimit));
  if (!found || found->cost > limit) consider(search(space, topology, direct, kNoLimit));
  internal_check(found.has_value(), "no way from one sharding of a value to another was found");
  return *found;
}

ReshardPlan make_plan(int64_t itemsize, const Shape& shape, ShardingRef from, ShardingRef to,
                      const Topology& topology) {
  ReshardPlan plan;
  if (from == to) return plan;
  Found found = find(itemsize, shape, *from, *to, topology);
  plan.cost_ns = found.cost;
  for (Step& step : found.steps) {
    const ShardingRef next = intern({from->mesh, std::move(step.to.dims), step.to.partial, step.to.reduction}, shape);
    plan.moves.push_back({step.kind, step.atoms, next, step.bytes});
    plan.bytes += step.bytes;
  }
  internal_check(!plan.moves.empty() && plan.moves.back().to == to, "a reshard plan does not end where it should");
  return plan;
}

using PlanKey = std::tuple<int64_t, Shape, ShardingRef, ShardingRef, int64_t, int64_t>;

// Never destroyed, and plans stay where they are: references to them are handed out.
struct Plans {
  std::mutex mutex;
  std::map<PlanKey, std::unique_ptr<const ReshardPlan>> plans;
};
Plans& plans() {
  static Plans* plans = new Plans();
  return *plans;
}

}  // namespace

const ReshardPlan& plan_reshard(DType dtype, const Shape& shape, ShardingRef from, ShardingRef to,
                                const Topology& topology) {
  internal_check(from != nullptr && to != nullptr, "a reshard without both shardings");
  internal_check(from->dims.size() == shape.size() && to->dims.size() == shape.size(),
                 "a reshard of shardings whose rank is not that of the value");
  if (from->mesh != to->mesh && !(*from->mesh == *to->mesh))
    throw ShardingError("a value on " + from->mesh->str() + " is needed on " + to->mesh->str() +
                        ". Expected both on one mesh. Mark both with the same mesh.");
  PlanKey key{itemsize(dtype), shape, from, to, topology.latency_ns, topology.picoseconds_per_byte};
  Plans& all = plans();
  {
    const std::lock_guard lock(all.mutex);
    if (const auto known = all.plans.find(key); known != all.plans.end()) return *known->second;
  }
  // Planned without the lock: two threads may plan the same and the first to be done is kept.
  auto plan = std::make_unique<const ReshardPlan>(make_plan(itemsize(dtype), shape, from, to, topology));
  const std::lock_guard lock(all.mutex);
  return *all.plans.try_emplace(std::move(key), std::move(plan)).first->second;
}

}  // namespace spmdx
