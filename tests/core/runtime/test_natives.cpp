// SPDX-License-Identifier: Apache-2.0
// Native collectives: which moves are made of them, and that they make the same of all.
#include "check.h"
#include "runtime/played_transfers.h"

namespace spmdx {

using namespace test;

constexpr NativeRules kAll{true, true};

static std::map<NativeKind, int> calls_of(int64_t count, int64_t devices, const Relayout& relayout,
                                          NativeRules rules = kAll) {
  const Traffic traffic = play(count, devices, relayout, rules);
  CHECK_EQ(traffic.elements, traffic.calls.empty() ? traffic.elements : 0);
  return traffic.calls;
}

using Calls = std::map<NativeKind, int>;

TEST(moves_that_are_a_collective_of_all_processes_are_native) {
  for (const int64_t count : {2, 3, 4, 8})
    for (const int64_t devices : {1, 2}) {
      std::vector<int64_t> ids;
      for (int64_t id = 0; id < count * devices; ++id) ids.push_back(id);
      const MeshRef mesh = Mesh::make(ids, {count * devices}, {"x"});
      const SubAxisSet all = (SubAxisSet{1} << mesh->sub_axes().size()) - 1;
      SubAxisList axes;
      for (SubAxisId axis = 0; axis < mesh->sub_axes().size(); ++axis) axes.push_back(axis);
      const Shape shape = {2 * count * devices, 3};
      const ShardingRef rows = sharding(mesh, shape, {axes, {}}), whole = sharding(mesh, shape, {{}, {}});
      const ShardingRef partial = sharding(mesh, shape, {{}, {}}, all, Reduction::sum);
      CHECK(calls_of(count, devices, {shape, rows, whole, {}}) == (Calls{{NativeKind::all_gather, 1}}));
      CHECK(calls_of(count, devices, {shape, partial, whole, {}}) == (Calls{{NativeKind::all_reduce, 1}}));
      CHECK(calls_of(count, devices, {shape, partial, rows, {}}) == (Calls{{NativeKind::reduce_scatter, 1}}));
      CHECK(calls_of(count, devices, {shape, whole, rows, {}}).empty());
    }
}

TEST(groups_of_an_axis_call_native_collectives_side_by_side) {
  const MeshRef mesh = Mesh::make({0, 1, 2, 3, 4, 5}, {2, 3}, {"x", "y"});
  const Shape shape = {6, 6};
  const ShardingRef both = sharding(mesh, shape, {{0}, {1}}), over_x = sharding(mesh, shape, {{0}, {}});
  CHECK(calls_of(6, 1, {shape, both, over_x, {}}) == (Calls{{NativeKind::all_gather, 2}}));
  CHECK(calls_of(3, 2, {shape, both, over_x, {}}).size() <= 1);
  const ShardingRef sums = sharding(mesh, shape, {{0}, {}}, 0b10, Reduction::sum);
  CHECK(calls_of(6, 1, {shape, sums, over_x, {}}) == (Calls{{NativeKind::all_reduce, 2}}));
  CHECK(calls_of(6, 1, {shape, sums, both, {}}) == (Calls{{NativeKind::reduce_scatter, 2}}));
}

TEST(uneven_parts_and_other_reductions_are_messages) {
  const MeshRef mesh = Mesh::make({0, 1, 2}, {3}, {"x"});
  const Shape shape = {7, 2};
  const ShardingRef rows = sharding(mesh, shape, {{0}, {}}), whole = sharding(mesh, shape, {{}, {}});
  CHECK(calls_of(3, 1, {shape, rows, whole, {}}).empty());
  CHECK((rules_for(kAll, DType::f32, Reduction::sum) == kAll));
  CHECK((rules_for(kAll, DType::bf16, Reduction::sum) == NativeRules{true, false}));
  CHECK((rules_for(kAll, DType::f32, Reduction::max) == NativeRules{true, false}));
}

TEST(what_may_not_be_native_is_messages) {
  const MeshRef mesh = Mesh::make({0, 1, 2, 3}, {4}, {"x"});
  const Shape shape = {8, 2};
  const ShardingRef rows = sharding(mesh, shape, {{0}, {}}), whole = sharding(mesh, shape, {{}, {}});
  const ShardingRef partial = sharding(mesh, shape, {{}, {}}, 0b11, Reduction::sum);
  CHECK(calls_of(4, 1, {shape, rows, whole, {}}, {false, true}).empty());
  CHECK(calls_of(4, 1, {shape, partial, whole, {}}, {true, false}).empty());
  CHECK(calls_of(4, 1, {shape, partial, rows, {}}, {true, false}).empty());
}

TEST(any_move_is_the_same_with_native_collectives) {
  std::mt19937 random(3);
  const MeshRef meshes[] = {Mesh::make({0, 1, 2, 3, 4, 5}, {3, 2}, {"x", "y"}),
                            Mesh::make({5, 0, 3, 1, 4, 2}, {3, 2}, {"x", "y"}),
                            Mesh::make({0, 2, 1, 3}, {2, 2}, {"x", "y"}), Mesh::make({3, 1, 0, 2}, {4}, {"x"})};
  std::map<NativeKind, int> calls;
  for (const MeshRef& mesh : meshes)
    for (const int64_t devices : {1, 2, 3})
      for (int trial = 0; trial < 300; ++trial) {
        const auto size = [&] { return static_cast<int64_t>(random() % 2 ? 12 : 1 + random() % 9); };
        const Shape shape = {size(), size()};
        const SubAxisSet before = random() % 4, after = before & random();
        const Relayout relayout{
            shape, any_layout(mesh, shape, before, random), any_layout(mesh, shape, after, random), {}};
        if (relayout.from->partial == 0b11 && relayout.to->partial) continue;  // shards_of knows sums that end at once
        const NativeRules rules{random() % 4 > 0, random() % 4 > 0};
        for (const auto& [kind, many] : play((6 + devices - 1) / devices, devices, relayout, rules).calls)
          calls[kind] += many;
      }
  for (const NativeKind kind : {NativeKind::all_gather, NativeKind::reduce_scatter, NativeKind::all_reduce})
    CHECK(calls[kind] > 50);
}

}  // namespace spmdx
