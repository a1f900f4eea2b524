// SPDX-License-Identifier: Apache-2.0
// The reshard planner: every move is what its kind says, plans are cheap, and known cases come out as they must.
#include <algorithm>
#include <cmath>
#include <random>

#include "check.h"
#include "sharding/cuts.h"
#include "sharding/notation.h"
#include "sharding/reshard/missing.h"
#include "sharding/reshard_checks.h"
#include "sharding/shards.h"

using namespace spmdx;
using namespace spmdx::test;

namespace {

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
