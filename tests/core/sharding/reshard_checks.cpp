// SPDX-License-Identifier: Apache-2.0
// What the planner's moves are, by the boxes of all devices.
#include "sharding/reshard_checks.h"

#include <algorithm>
#include <numeric>

#include "check.h"
#include "sharding/cuts.h"
#include "sharding/notation.h"
#include "sharding/shards.h"

namespace spmdx::test {

MeshRef mesh_of(std::vector<int64_t> shape, std::vector<std::string> names) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  std::vector<int64_t> ids(n);
  std::iota(ids.begin(), ids.end(), 0);
  return Mesh::make(ids, std::move(shape), std::move(names));
}

int64_t local_bytes(const Sharding& sharding, const Shape& shape) { return 4 * max_local_numel(sharding, shape); }

bool contains(const Box& outer, const Box& inner) {
  for (const Range& range : inner)
    if (range.extent == 0) return true;
  for (size_t i = 0; i < outer.size(); ++i)
    if (inner[i].start < outer[i].start || inner[i].start + inner[i].extent > outer[i].start + outer[i].extent)
      return false;
  return true;
}

// By the boxes of all devices: what the worst one lacks, and how many distinct shards it lies in.
std::pair<int64_t, int64_t> lacking(const Sharding& from, const Sharding& to, const Shape& shape) {
  int64_t most = 0, peers = 0;
  const SubAxisSet kept = from.dim_sub_axes();
  for (int64_t p = 0; p < from.mesh->size(); ++p) {
    const Box wanted = local_box(to, shape, p);
    int64_t needed = 1, here = 0, sources = 0;
    for (const Range& range : wanted) needed *= range.extent;
    for (int64_t i = 0; i < num_distinct(*from.mesh, kept); ++i) {
      const Box box = local_box(from, shape, representative(*from.mesh, kept, i));
      int64_t overlap = 1;
      for (size_t d = 0; d < box.size(); ++d)
        overlap *= std::max<int64_t>(0, std::min(box[d].start + box[d].extent, wanted[d].start + wanted[d].extent) -
                                            std::max(box[d].start, wanted[d].start));
      const bool own = i == distinct_index(*from.mesh, kept, p);
      if (own) here = overlap;
      sources += overlap > 0 && !own;
    }
    most = std::max(most, needed - here);
    if (needed > here) peers = std::max(peers, sources);
  }
  return {most, peers};
}

namespace {

// The boxes of the devices that differ from `position` only along `sub_axes`.
bool group_covers(const Sharding& from, const Shape& shape, int64_t position, SubAxisSet sub_axes, const Box& wanted) {
  int64_t present = 0, volume = 1;
  const Mesh& mesh = *from.mesh;
  for (const Range& range : wanted) volume *= range.extent;
  std::vector<Box> seen;
  for (int64_t p = 0; p < mesh.size(); ++p) {
    bool member = true;
    for (size_t a = 0; a < mesh.sub_axes().size(); ++a)
      member &= (sub_axes >> a & 1) ||
                mesh.digit(p, static_cast<SubAxisId>(a)) == mesh.digit(position, static_cast<SubAxisId>(a));
    const Box box = local_box(from, shape, p);
    if (!member || std::count(seen.begin(), seen.end(), box)) continue;
    seen.push_back(box);
    int64_t overlap = 1;
    for (size_t i = 0; i < box.size(); ++i)
      overlap *= std::max<int64_t>(0, std::min(box[i].start + box[i].extent, wanted[i].start + wanted[i].extent) -
                                          std::max(box[i].start, wanted[i].start));
    present += overlap;
  }
  return present == volume;
}

// Checks one move by the boxes of all devices, without the planner's own idea of cuts.
bool move_holds(const Sharding& from, const Move& move, const Shape& shape) {
  const Sharding& to = *move.to;
  const Mesh& mesh = *from.mesh;
  for (size_t i = 0; i < shape.size(); ++i)
    if (!is_legal(mesh, to.dims[i], shape[i])) return false;
  const int64_t group = mesh.group_size(move.sub_axes), in = local_bytes(from, shape), out = local_bytes(to, shape);
  const auto every = [&](auto holds) {
    for (int64_t p = 0; p < mesh.size(); ++p)
      if (!holds(local_box(from, shape, p), local_box(to, shape, p), p)) return false;
    return true;
  };
  const auto covered = [&](const Box&, const Box& now, int64_t p) {
    return group_covers(from, shape, p, move.sub_axes, now);
  };
  const auto narrower = [](const Box& old, const Box& now, int64_t) { return contains(old, now); };
  const auto same = [](const Box& old, const Box& now, int64_t) { return old == now; };
  const auto wider = [](const Box& old, const Box& now, int64_t) { return contains(now, old); };
  const bool same_partial = from.partial == to.partial && from.reduction == to.reduction;
  switch (move.kind) {
    case Collective::slice:
      return same_partial && move.bytes == 0 && every(narrower);
    case Collective::all_gather:
      return same_partial && move.bytes == out * (group - 1) / group && every(covered) && every(wider);
    case Collective::all_to_all:
      return same_partial && move.bytes == std::max(in, out) * (group - 1) / group && every(covered);
    case Collective::collective_permute:
      return same_partial && move.bytes == in && in == out && every(covered) &&
             every([&](const Box&, const Box& now, int64_t) {
               for (int64_t p = 0; p < mesh.size(); ++p)
                 if (local_box(from, shape, p) == now) return true;
               return false;
             });
    case Collective::reduce_scatter:
      return (from.partial & ~to.partial) == move.sub_axes && (to.partial & ~from.partial) == 0 &&
             move.bytes == in * (group - 1) / group && every(narrower);
    case Collective::all_reduce:
      return (from.partial & ~to.partial) == move.sub_axes && (to.partial & ~from.partial) == 0 &&
             move.bytes == 2 * in * (group - 1) / group && every(same);
    case Collective::to_partial:
      return (to.partial & ~from.partial) == move.sub_axes && (from.partial & ~to.partial) == 0 && move.bytes == 0 &&
             every(same) && (from.partial == 0 || from.reduction == to.reduction);
    case Collective::send_recv:
      return same_partial && move.bytes == 4 * lacking(from, to, shape).first && every(covered);
  }
  return false;
}

std::string show_plan(const Shape& shape, ShardingRef from, ShardingRef to, const ReshardPlan& plan) {
  const TensorType type{DType::f32, shape, false};
  std::string out = str(type, from);
  for (const Move& move : plan.moves)
    out += " -" + std::string(name(move.kind)) + " " + std::to_string(move.bytes) + "-> " + str(type, move.to);
  return out + " peak " + std::to_string(plan.peak_bytes) + " wanted " + str(type, to) + " cost " +
         std::to_string(plan.cost_ns);
}

int64_t replicate_cost(const Shape& shape, const Sharding& from, const Topology& topology) {
  int64_t cost = 0;
  const int64_t group = from.mesh->group_size(from.partial), parts = from.mesh->group_size(from.dim_sub_axes());
  const int64_t gathered = 4 * lacking(from, *replicated(from.mesh, shape.size()), shape).first;
  if (from.partial != 0)
    cost += topology.cost_ns(Collective::all_reduce, 2 * local_bytes(from, shape) * (group - 1) / group, Group(group));
  return cost + topology.cost_ns(Collective::all_gather, gathered, Group(parts));
}

}  // namespace

void check_plan(const Shape& shape, ShardingRef from, ShardingRef to, const Topology& topology) {
  const ReshardPlanRef found = plan_reshard(DType::f32, shape, from, to, topology);
  const ReshardPlan& plan = *found;
  const auto check = [&](bool holds, const char* what) {
    spmdx::test::check(holds, __FILE__, __LINE__, holds ? "" : what + (": " + show_plan(shape, from, to, plan)));
  };
  ShardingRef at = from;
  int64_t cost = 0, bytes = 0;
  bool gathered_whole = false, even = topology.levels[0].latency_ns == 0;
  int64_t peak = local_bytes(*from, shape);
  for (int64_t size : shape) even &= size % 24 == 0;
  for (const Move& move : plan.moves) {
    check(move_holds(*at, move, shape), name(move.kind).data());
    check(!(gathered_whole && move.kind == Collective::slice && at->dim_sub_axes() == 0), "replicates, then slices");
    check(!(gathered_whole && move.kind == Collective::slice && even), "replicates, and slices later");
    gathered_whole |= at->dim_sub_axes() != 0 && move.to->dim_sub_axes() == 0;
    const int64_t group = move.kind == Collective::send_recv ? lacking(*at, *move.to, shape).second + 1
                                                             : from->mesh->group_size(move.sub_axes);
    cost += topology.cost_ns(move.kind, move.bytes, Group(group));
    peak = std::max(peak, local_bytes(*move.to, shape));
    bytes += move.bytes;
    check(at != move.to, "a move that does nothing");
    at = move.to;
  }
  check(at == to, "does not end at the goal");
  check(cost == plan.cost_ns && bytes == plan.bytes, "sums");
  check(peak == plan.peak_bytes, "peak");
  check(peak <= std::max(local_bytes(*from, shape), local_bytes(*to, shape)) + kReshardSlack, "too much memory");
  // Replicating may start fewer messages, but does not fit the memory.
  const int64_t posts = 2 * from->mesh->size() * topology.levels[0].message_ns;
  check(cost <= replicate_cost(shape, *from, topology) + posts, "slower than replicating");
  check((from == to) == plan.moves.empty(), "empty exactly between equals");
}

// A random legal sharding; parts of axes where they divide.
ShardingRef random_sharding(const MeshRef& mesh, const Shape& shape, bool tiles, std::mt19937& random) {
  const auto draw = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  while (true) {
    Sharding sharding{mesh, std::vector<DimSharding>(shape.size()), 0, Reduction::none};
    const bool whole = draw(2);
    std::vector<SubAxisList> runs;
    for (size_t axis = 0; axis < mesh->axes().size(); ++axis) {
      const SubAxisList sub_axes = mesh->sub_axes_of_axis(static_cast<int>(axis));
      if (whole)
        runs.push_back(sub_axes);
      else
        for (SubAxisId sub_axis : sub_axes) runs.push_back({sub_axis});
    }
    std::shuffle(runs.begin(), runs.end(), random);
    for (const SubAxisList& run : runs) {
      const int64_t place = draw(static_cast<int64_t>(shape.size()) + 2);
      if (place < static_cast<int64_t>(shape.size())) {
        SubAxisList& sub_axes = sharding.dims[place].sub_axes;
        sub_axes.append(run);
      } else if (place == static_cast<int64_t>(shape.size())) {
        sharding.partial |= sub_axis_set(run);
      }
    }
    if (sharding.partial) sharding.reduction = draw(4) ? Reduction::sum : Reduction::max;
    if (tiles)
      for (DimSharding& dim : sharding.dims) dim.tile = draw(3) ? 1 : 2 + draw(3);
    bool legal = true;
    for (size_t i = 0; i < shape.size(); ++i) legal &= is_legal(*mesh, sharding.dims[i], shape[i]);
    if (legal) return intern(std::move(sharding), shape);
  }
}

}  // namespace spmdx::test
