// SPDX-License-Identifier: Apache-2.0
// The reshard planner: a bounded search, the normal form where it grows too large, and a table of plans made before.
#include "sharding/reshard/reshard.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/latest.h"
#include "sharding/reshard/missing.h"
#include "sharding/reshard/search.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

constexpr size_t kMaxSingleSubAxes = 4;  // so many sub-axes move one by one; more of them move in units

// What a plan is asked for, however it is searched.
struct Task {
  int64_t itemsize;
  const Shape& shape;
  ShardingRef from, to;
  const Topology& topology;
};

// What always works: sums first, then the missing boxes.
ReshardChain straight(const ReshardSpace& space, const Task& task, const std::vector<uint8_t>& levels) {
  ReshardChain chain;
  const auto add = [&](ReshardStep step) {
    chain.cost_ns += cost_ns(step, space.mesh(), task.topology, levels);
    chain.steps.push_back(std::move(step));
    return chain.steps.back().to;
  };
  ReshardState state = space.start();
  const ReshardState& goal = space.goal();
  const SubAxisSet summed = state.reduction == goal.reduction ? state.partial & ~goal.partial : state.partial;
  if (summed) state = add(space.all_reduce(state, summed));
  if (state.dims != goal.dims) state = add(space.direct(state));
  if (goal.partial & ~state.partial) add(space.to_partial(state));
  return chain;
}

ReshardChain find(const Task& task) {
  const Sharding &from = *task.from, &to = *task.to;
  const std::vector<uint8_t> levels = sub_axis_levels(from.mesh, task.topology);
  const bool few = sub_axis_list(from.used() | to.used()).size() <= kMaxSingleSubAxes;
  const ReshardScope scope = few ? ReshardScope::sub_axes : ReshardScope::units;
  const ReshardSpace space(task.itemsize, task.shape, from, to, levels, scope);
  ReshardChain fallback = straight(space, task, levels);
  const int64_t ends = std::max(space.local_bytes(space.start()), space.local_bytes(space.goal()));
  const ReshardLimits limits{fallback.cost_ns, ends + kReshardSlack};
  if (auto found = search(space, task.topology, levels, limits)) return std::move(*found);
  // The space is too large. Moves straight to the goal are few in any space: slice, permute, all_to_all, all_gather.
  const ReshardSpace towards(task.itemsize, task.shape, from, to, levels, ReshardScope::towards);
  if (auto found = search(towards, task.topology, levels, limits)) return std::move(*found);
  return fallback;
}

void append(ReshardPlan& plan, const Move& move, int64_t cost_ns) {
  plan.moves.push_back(move);
  plan.bytes += move.bytes;
  plan.cost_ns += cost_ns;
}

ReshardPlan plan_within_mesh(const Task& task) {
  ReshardPlan plan;
  if (task.from == task.to) return plan;
  ReshardChain chain = find(task);
  for (ReshardStep& step : chain.steps) {
    Sharding next{task.from->mesh, std::move(step.to.dims), step.to.partial, step.to.reduction};
    append(plan, {step.kind, step.sub_axes, intern(std::move(next), task.shape), step.bytes}, 0);
  }
  plan.cost_ns = chain.cost_ns;
  internal_check(!plan.moves.empty() && plan.moves.back().to == task.to, "a reshard plan does not end where it should");
  return plan;
}

// Ways to reduce the partial on its own mesh: an all_reduce, or a reduce_scatter to one of the dims.
std::vector<ShardingRef> summed(const Sharding& from, const Shape& shape) {
  Sharding whole{from.mesh, from.dims, 0, Reduction::none};
  std::vector<ShardingRef> found = {intern(whole, shape)};
  for (size_t i = 0; from.partial && i < shape.size(); ++i) {
    Sharding cut = whole;
    for (SubAxisId sub_axis : sub_axis_list(from.partial)) cut.dims[i].sub_axes.push_back(sub_axis);
    if (is_legal(*from.mesh, cut.dims[i], shape[i])) found.push_back(intern(std::move(cut), shape));
  }
  return found;
}

// Sums are made on the first mesh, parts of sums on the second; between them go the missing boxes.
ReshardPlan plan_between_meshes(const Task& task) {
  Sharding arrived{task.to->mesh, task.to->dims, 0, Reduction::none};
  const ShardingRef landing = intern(std::move(arrived), task.shape);
  std::optional<ReshardPlan> best;
  for (const ShardingRef& start : summed(*task.from, task.shape)) {
    ReshardPlan plan = plan_within_mesh({task.itemsize, task.shape, task.from, start, task.topology});
    const Missing lacking = missing(*start, *landing, task.shape);
    const int64_t bytes = lacking.elements * task.itemsize;
    const Collective kind = bytes ? Collective::send_recv : Collective::slice;
    append(plan, {kind, 0, landing, bytes},
           task.topology.cost_ns(kind, bytes, Group(lacking.peers + 1, task.topology.levels.size() - 1)));
    if (!best || plan.cost_ns < best->cost_ns) best = std::move(plan);
  }
  if (landing != task.to) append(*best, {Collective::to_partial, task.to->partial, task.to, 0}, 0);
  return std::move(*best);
}

ReshardPlan make_plan(const Task& task) {
  const bool one_mesh = task.from->mesh == task.to->mesh || *task.from->mesh == *task.to->mesh;
  ReshardPlan plan = one_mesh ? plan_within_mesh(task) : plan_between_meshes(task);
  plan.peak_bytes = max_local_numel(*task.from, task.shape) * task.itemsize;
  for (const Move& move : plan.moves)
    plan.peak_bytes = std::max(plan.peak_bytes, max_local_numel(*move.to, task.shape) * task.itemsize);
  return plan;
}

constexpr size_t kPlans = 1 << 12;  // half of the plans that are kept; each takes about a kilobyte

struct PlanKey {
  int64_t itemsize;
  Shape shape;
  ShardingRef from, to;
  size_t topology;
  bool operator==(const PlanKey&) const = default;
};
struct PlanKeyHash {
  size_t operator()(const PlanKey& key) const {
    uint64_t h = hash_combine(reinterpret_cast<uintptr_t>(key.from.get()), reinterpret_cast<uintptr_t>(key.to.get()));
    h = hash_combine(h, static_cast<uint64_t>(key.itemsize) + (key.topology << 8));
    for (int64_t size : key.shape) h = hash_combine(h, static_cast<uint64_t>(size));
    return h;
  }
};

// Never destroyed.
struct Plans {
  std::mutex mutex;
  Latest<PlanKey, ReshardPlanRef, PlanKeyHash> plans{kPlans};
};
Plans& plans() {
  static Plans* plans = new Plans();
  return *plans;
}

}  // namespace

ReshardPlanRef plan_reshard(DType dtype, const Shape& shape, const ShardingRef& from, const ShardingRef& to,
                            const Topology& topology) {
  internal_check(from != nullptr && to != nullptr, "a reshard without both shardings");
  internal_check(from->dims.size() == shape.size() && to->dims.size() == shape.size(),
                 "a reshard of shardings whose rank is not that of the value");
  PlanKey key{itemsize(dtype), shape, from, to, topology_id(topology)};
  Plans& all = plans();
  {
    const std::lock_guard lock(all.mutex);
    if (const ReshardPlanRef* known = all.plans.find(key)) return *known;
  }
  // Planned without the lock: two threads may plan the same and the first to be done is kept.
  auto plan = std::make_shared<const ReshardPlan>(make_plan({itemsize(dtype), shape, from, to, topology}));
  const std::lock_guard lock(all.mutex);
  return all.plans.insert(std::move(key), std::move(plan));
}

size_t reshard_plans_kept() {
  Plans& all = plans();
  const std::lock_guard lock(all.mutex);
  return all.plans.size();
}

}  // namespace spmdx
