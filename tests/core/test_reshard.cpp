// SPDX-License-Identifier: Apache-2.0
// The reshard planner: every move is what its kind says, plans are cheap, and known cases come out as they must.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/error.h"
#include "check.h"
#include "sharding/cuts.h"
#include "sharding/notation.h"
#include "sharding/reshard/missing.h"
#include "sharding/reshard/reshard.h"
#include "sharding/shards.h"

using namespace spmdx;

namespace {

const Topology kTopology;
const Topology kBytesOnly{{Level{0, 0, 0, 1000}}, 0, 0};
const Topology kSlowMessages{{Level{0, 5'000, 1'000'000, 1}}, 0, 0};  // would rather gather than exchange

MeshRef mesh_of(std::vector<int64_t> shape, std::vector<std::string> names = {}) {
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
    cost += topology.cost_ns(Collective::all_reduce, 2 * local_bytes(from, shape) * (group - 1) / group, group);
  return cost + topology.cost_ns(Collective::all_gather, gathered, parts);
}

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
    cost += topology.cost_ns(move.kind, move.bytes, group);
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
    std::vector<std::vector<SubAxisId>> runs;
    for (size_t axis = 0; axis < mesh->axes().size(); ++axis) {
      const std::vector<SubAxisId> sub_axes = mesh->sub_axes_of_axis(static_cast<int>(axis));
      if (whole)
        runs.push_back(sub_axes);
      else
        for (SubAxisId sub_axis : sub_axes) runs.push_back({sub_axis});
    }
    std::shuffle(runs.begin(), runs.end(), random);
    for (const std::vector<SubAxisId>& run : runs) {
      const int64_t place = draw(static_cast<int64_t>(shape.size()) + 2);
      if (place < static_cast<int64_t>(shape.size())) {
        std::vector<SubAxisId>& sub_axes = sharding.dims[place].sub_axes;
        sub_axes.insert(sub_axes.end(), run.begin(), run.end());
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

ShardingRef parse(const std::string& text, const MeshRef& mesh) {
  size_t pos = 0;
  const auto [type, sharding] = parse_type(text, pos, mesh);
  return sharding ? sharding : replicated(mesh, type.shape.size());
}

std::string kinds(const ReshardPlan& plan) {
  std::string out;
  for (const Move& move : plan.moves) out += (out.empty() ? "" : " ") + std::string(name(move.kind));
  return out;
}

// The moves from one type to another, as words.
std::string plan_of(const MeshRef& mesh, const std::string& from, const std::string& to) {
  size_t pos = 0;
  const TensorType type = parse_type(from, pos, mesh).first;
  return kinds(*plan_reshard(type.dtype, type.shape, parse(from, mesh), parse(to, mesh), kTopology));
}

}  // namespace

TEST(random_reshards_hold) {
  std::mt19937 random(7);
  for (const std::vector<int64_t>& axes :
       std::vector<std::vector<int64_t>>{{2}, {3}, {4}, {8}, {4, 2}, {2, 2, 2}, {3, 2}, {6}, {2, 1, 3}}) {
    const MeshRef mesh = mesh_of(axes);
    for (int i = 0; i < 300; ++i) {
      Shape shape;
      for (size_t rank = random() % 4; rank > 0; --rank)
        shape.push_back(i % 2 ? 1 + static_cast<int64_t>(random() % 9) : 24 * (1 + static_cast<int64_t>(random() % 3)));
      const bool tiles = i % 5 == 0;
      const ShardingRef from = random_sharding(mesh, shape, tiles, random);
      const ShardingRef to = random_sharding(mesh, shape, tiles, random);
      const Topology* const topologies[] = {&kTopology, &kBytesOnly, &kSlowMessages};
      check_plan(shape, from, to, *topologies[i % 3]);
      CHECK_EQ(plan_reshard(DType::f32, shape, from, from, kTopology)->cost_ns, 0);
    }
  }
}

TEST(many_axes_stay_bounded) {
  std::mt19937 random(11);
  const MeshRef mesh = mesh_of({4, 8, 2, 3, 2});
  for (int i = 0; i < 12; ++i) {
    const Shape shape = {96, 192, 96};
    check_plan(shape, random_sharding(mesh, shape, false, random), random_sharding(mesh, shape, false, random),
               kTopology);
  }
}

TEST(known_reshards) {
  const MeshRef mesh = mesh_of({4, 2}, {"data", "model"});
  CHECK_EQ(plan_of(mesh, "f32[64, 64]", "f32[64@data, 64@model]"), std::string("slice"
                                                                               " slice"));
  CHECK_EQ(plan_of(mesh, "f32[64@data, 64]", "f32[64, 64]"), std::string("all_gather"));
  CHECK_EQ(plan_of(mesh, "f32[64@data, 64]", "f32[64, 64@data]"), std::string("all_to_all"));
  CHECK_EQ(plan_of(mesh, "f32[7@data, 5]", "f32[7, 5@data]"), std::string("all_to_all"));
  CHECK_EQ(plan_of(mesh, "f32[64@(data,model)]", "f32[64@(model,data)]"), std::string("collective_permute"));
  CHECK_EQ(plan_of(mesh, "f32[64, 8]{partial sum: data}", "f32[64@data, 8]"), std::string("reduce_scatter"));
  CHECK_EQ(plan_of(mesh, "f32[7@model, 8]{partial sum: data}", "f32[7@(model,data), 8]"),
           std::string("reduce_scatter"));
  CHECK_EQ(plan_of(mesh, "f32[7, 8]{partial sum: data}", "f32[7@data, 8]"), std::string("reduce_scatter"));
  CHECK_EQ(plan_of(mesh, "f32[64, 8]{partial sum: data}", "f32[64, 8]"), std::string("all_reduce"));
  CHECK_EQ(plan_of(mesh, "f32[64]{partial sum: data}", "f32[64]{partial max: data}"),
           std::string("all_reduce to_partial"));
  CHECK_EQ(plan_of(mesh, "f32[64]{partial sum: data,model}", "f32[64]{partial sum: model}"), std::string("all_reduce"));
  CHECK_EQ(plan_of(mesh, "f32[]", "f32[]{partial sum: data}"), std::string("to_partial"));
  CHECK_EQ(plan_of(mesh, "f32[12@model/4]", "f32[12@model]"), std::string("send_recv"));
  CHECK_EQ(plan_of(mesh, "f32[7@data]", "f32[7@model]"), std::string("send_recv"));
}

TEST(tile_bytes_are_exact) {
  const MeshRef mesh = mesh_of({2}, {"x"});
  const ShardingRef from = parse("f32[12@x/4]", mesh), to = parse("f32[12@x]", mesh);
  // 8 and 4 become 6 and 6: one device lacks two elements.
  CHECK_EQ(plan_reshard(DType::f32, {12}, from, to, kTopology)->bytes, 8);
  CHECK_EQ(plan_reshard(DType::f64, {12}, from, to, kTopology)->bytes, 16);
}

TEST(reshards_between_meshes_send_what_is_missing) {
  const MeshRef a = mesh_of({4}, {"a"}), b = mesh_of({2, 2}, {"b", "c"});
  const MeshRef other = Mesh::make({5, 4, 3, 2}, {4}, {"d"}), reversed = Mesh::make({3, 2, 1, 0}, {4}, {"a"});
  const auto plan = [](const Shape& shape, ShardingRef from, ShardingRef to) {
    const ReshardPlanRef found = plan_reshard(DType::f32, shape, from, to, kTopology);
    CHECK(found->moves.back().to == to);
    return kinds(*found) + " " + std::to_string(found->bytes);
  };
  CHECK_EQ(plan({8}, parse("f32[8@a]", a), parse("f32[8@(b,c)]", b)), std::string("slice 0"));
  CHECK_EQ(plan({8}, parse("f32[8@a]", a), parse("f32[8@b]", b)), std::string("send_recv 8"));
  CHECK_EQ(plan({8}, parse("f32[8@a]", a), parse("f32[8@a]", reversed)), std::string("send_recv 8"));
  CHECK_EQ(plan({7}, parse("f32[7@a]", a), parse("f32[7@d]", other)), std::string("send_recv 8"));
  CHECK_EQ(plan({8}, replicated(a, 1), parse("f32[8@d]", other)), std::string("send_recv 8"));
  CHECK_EQ(plan({64}, parse("f32[64]{partial sum: a}", a), replicated(b, 1)), std::string("all_reduce slice 384"));
  CHECK_EQ(plan({8}, parse("f32[8@a]", a), parse("f32[8]{partial sum: b}", b)), std::string("send_recv to_partial 24"));
}

TEST(missing_boxes_in_closed_form) {
  std::mt19937 random(5);
  for (const std::vector<int64_t>& axes : std::vector<std::vector<int64_t>>{{4, 2}, {2, 2, 2}, {3, 2}, {2, 3}, {12}}) {
    const MeshRef mesh = mesh_of(axes);
    for (int i = 0; i < 200; ++i) {
      Shape shape;
      for (int rank = 0; rank < 3; ++rank) shape.push_back(i % 2 ? 24 : static_cast<int64_t>(random() % 8));
      Sharding from = *random_sharding(mesh, shape, i % 4 == 0, random);
      Sharding to = *random_sharding(mesh, shape, i % 4 == 0, random);
      from.partial = to.partial = 0;
      const Missing found = missing(*mesh, shape, from.dims, to.dims);
      CHECK_EQ(found.elements, lacking(from, to, shape).first);
      CHECK_EQ(found.peers, lacking(from, to, shape).second);
      const SubAxisSet sub_axes = exchanging_sub_axes(*mesh, shape, from.dims, to.dims);
      for (int64_t p = 0; p < mesh->size(); ++p) {
        CHECK(group_holds(from, to, shape, sub_axes, p));
        CHECK_EQ(group_holds(from, to, shape, 0, p), contains(local_box(from, shape, p), local_box(to, shape, p)));
      }
      CHECK_EQ(missing(from, to, shape).elements, found.elements);
    }
  }
}

TEST(plans_are_cached) {
  const MeshRef mesh = mesh_of({2}, {"a"});
  const ShardingRef from = parse("f32[4@a]", mesh), to = replicated(mesh, 1);
  const ReshardPlanRef plan = plan_reshard(DType::f32, {4}, from, to, kTopology);
  CHECK(plan == plan_reshard(DType::i32, {4}, from, to, kTopology));
  CHECK(plan != plan_reshard(DType::f64, {4}, from, to, kTopology));
  CHECK(plan != plan_reshard(DType::f32, {4}, from, to, kBytesOnly));
}

TEST(planned_bytes_against_replicate_then_slice) {
  const MeshRef mesh = mesh_of({2, 2, 2}, {"x", "y", "z"});
  const Shape shape = {64, 64, 64};
  std::vector<ShardingRef> all;
  for (int places = 0; places < 64; ++places) {  // the dim of each axis, or nowhere
    std::vector<int> order = {0, 1, 2};
    do {
      Sharding sharding{mesh, std::vector<DimSharding>(3), 0, Reduction::none};
      for (int axis : order)
        if (const int dim = places >> (2 * axis) & 3; dim < 3)
          sharding.dims[dim].sub_axes.push_back(static_cast<SubAxisId>(axis));
      const ShardingRef ref = intern(std::move(sharding), shape);
      if (!std::count(all.begin(), all.end(), ref)) all.push_back(ref);
    } while (std::next_permutation(order.begin(), order.end()));
  }
  CHECK_EQ(all.size(), 106u);
  double logs = 0;
  int64_t pairs = 0, most_moves = 0;
  for (ShardingRef from : all)
    for (ShardingRef to : all) {
      const ReshardPlanRef found = plan_reshard(DType::f32, shape, from, to, kBytesOnly);
      const ReshardPlan& plan = *found;
      int64_t collectives = 0;
      for (const Move& move : plan.moves) {
        collectives += move.bytes > 0;
        CHECK(max_local_numel(*move.to, shape) <= std::max(max_local_numel(*from, shape), max_local_numel(*to, shape)));
      }
      most_moves = std::max(most_moves, collectives);
      if (plan.bytes == 0) continue;
      const int64_t naive = 4 * numel(shape) - local_bytes(*from, shape);
      logs += std::log(static_cast<double>(naive) / static_cast<double>(plan.bytes));
      ++pairs;
    }
  const double ratio = std::exp(logs / static_cast<double>(pairs));
  CHECK(most_moves <= 4);
  spmdx::test::check(ratio > 4.2 && ratio < 5.5, __FILE__, __LINE__, "geometric mean " + std::to_string(ratio));
}
