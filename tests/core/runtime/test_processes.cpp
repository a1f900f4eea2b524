// SPDX-License-Identifier: Apache-2.0
// Collectives between processes, all of them played here: each shard is what one process would have made of it.
#include <random>

#include "check.h"
#include "runtime/collective/sent.h"
#include "runtime/played_transfers.h"
#include "runtime/step/differences.h"

namespace spmdx {
using namespace test;

TEST(processes_hold_the_shards_of_their_devices) {
  const MeshRef mesh = Mesh::make({0, 1, 2, 3, 4, 5}, {3, 2}, {"x", "y"});
  const Processes second{3, 1, 2};
  CHECK_EQ(positions_of(second, 1, *mesh), (std::vector<int64_t>{2, 3}));
  CHECK_EQ(held_by(second, 1, *mesh, 0b01), (std::vector<int64_t>{1}));
  CHECK_EQ(held_by(second, 1, *mesh, 0b10), (std::vector<int64_t>{0, 1}));
  CHECK(held_everywhere(second, *mesh, 0b10));
  CHECK(!held_everywhere(second, *mesh, 0b01));
  CHECK(!held_everywhere({4, 0, 2}, *mesh, 0));  // the last process has no device of the mesh
}

TEST(collectives_between_processes_equal_those_within_one) {
  std::mt19937 random(1);
  const MeshRef meshes[] = {Mesh::make({0, 1, 2, 3, 4, 5}, {3, 2}, {"x", "y"}),
                            Mesh::make({5, 0, 3, 1, 4, 2}, {3, 2}, {"x", "y"}),
                            Mesh::make({0, 2, 1, 3}, {2, 2}, {"x", "y"})};
  for (const MeshRef& mesh : meshes)
    for (const int64_t devices : {1, 2, 3})
      for (int trial = 0; trial < 60; ++trial) {
        const Shape shape = {static_cast<int64_t>(1 + random() % 9), static_cast<int64_t>(1 + random() % 7)};
        const SubAxisSet before = random() % 4, after = before & random();
        const Relayout relayout{
            shape, any_layout(mesh, shape, before, random), any_layout(mesh, shape, after, random), {}};
        if (relayout.from->partial == 0b11 && relayout.to->partial) continue;  // shards_of knows sums that end at once
        play((6 + devices - 1) / devices, devices, relayout);
      }
}

TEST(a_large_sum_is_shared_out_among_processes) {
  const MeshRef mesh = Mesh::make({0, 1, 2, 3}, {4}, {"x"});
  const Shape shape = {kLeastSharedSum, 2};
  const ShardingRef partial = sharding(mesh, shape, {{}, {}}, 0b11, Reduction::sum);
  const int64_t elements = play(4, 1, {shape, partial, sharding(mesh, shape, {{}, {}}), {}}).elements;
  CHECK_EQ(elements, 2 * 3 * numel(shape));  // 2 · size · (g − 1) / g for each of g
}

TEST(processes_with_several_devices_sum_before_they_send) {
  const MeshRef mesh = Mesh::make({0, 1, 2, 3, 4, 5, 6, 7}, {2, 2, 2}, {"x", "y", "z"});
  const Shape shape = {3, 5};
  const ShardingRef partial = sharding(mesh, shape, {{}, {}}, 0b111, Reduction::sum);
  const int64_t elements = play(2, 4, {shape, partial, sharding(mesh, shape, {{}, {}}), {}}).elements;
  CHECK_EQ(elements, 2 * numel(shape));
}

TEST(a_gather_between_processes_sends_every_row_once_to_each) {
  const MeshRef mesh = Mesh::make({0, 1, 2, 3}, {2, 2}, {"x", "y"});
  const Shape shape = {4, 3};
  const ShardingRef cut = sharding(mesh, shape, {{0, 1}, {}}), whole = sharding(mesh, shape, {{}, {}});
  CHECK_EQ(play(4, 1, {shape, cut, whole, {}}).elements, 3 * numel(shape));
  CHECK_EQ(play(2, 2, {shape, cut, whole, {}}).elements, numel(shape));
}

TEST(a_shard_that_some_process_receives_lies_in_rows_in_all_of_them) {
  const MeshRef mesh = Mesh::make({0, 1, 2}, {3}, {"x"});
  const Shape shape = {6, 4};
  const ShardingRef whole = sharding(mesh, shape, {{}, {}}, 0, Reduction::none);
  const ShardingRef cut = sharding(mesh, shape, {{0}, {}}, 0, Reduction::none);
  const auto lie_in_rows = [&](const ShardingRef& from, const ShardingRef& to) {
    std::vector<bool> rows;
    for (int64_t p = 0; p < 3; ++p)
      for (const Target& target : make_route({3, p, 1}, {shape, from, to, {}}).targets) rows.push_back(target.in_rows);
    return rows;
  };
  CHECK_EQ(lie_in_rows(cut, whole), (std::vector<bool>{true, true, true}));
  CHECK_EQ(lie_in_rows(whole, cut), (std::vector<bool>{false, false, false}));
}

TEST(rows_change_places_between_processes) {
  const MeshRef mesh = Mesh::make({0, 1, 2}, {3}, {"x"});
  const Shape shape = {7, 2};
  const ShardingRef cut = sharding(mesh, shape, {{0}, {}});
  const Relayout relayout{shape, cut, cut, {0, {6, 5, -1, 3, 2, 1, 0}}};
  CHECK(play(3, 1, relayout).elements > 0);
}

TEST(devices_send_each_other_what_processes_of_one_device_do) {
  std::mt19937 random(2);
  const MeshRef mesh = Mesh::make({5, 0, 3, 1, 4, 2}, {3, 2}, {"x", "y"});
  for (int trial = 0; trial < 200; ++trial) {
    const Shape shape = {static_cast<int64_t>(1 + random() % 9), static_cast<int64_t>(1 + random() % 7)};
    const Relayout relayout{shape, any_layout(mesh, shape, 0, random), any_layout(mesh, shape, 0, random), {}};
    int64_t bytes = 0;
    for (const Sent& one : sent(relayout, DType::f64)) {
      CHECK(one.from != one.to && one.bytes > 0);
      bytes += one.bytes;
    }
    CHECK_EQ(bytes, 8 * play(6, 1, relayout).elements);
  }
}

TEST(the_first_difference_between_programs_is_quoted_with_both_lines) {
  const Account mine{0, "mesh(x=2)\n%1 : f32[2] = aten.add(%0, %0)  // train.py:3\nvalues\n%0 1f"};
  const Account other{1, "mesh(x=2)\n%1 : f32[2] = aten.mul(%0, %0)  // train.py:5\nvalues\n%0 1f"};
  const std::string said = first_difference(mine, {other});
  CHECK(said.find("process 0 has `%1 : f32[2] = aten.add(%0, %0)` (train.py:3)") != said.npos);
  CHECK(said.find("process 1 has `%1 : f32[2] = aten.mul(%0, %0)` (train.py:5)") != said.npos);
  const Account longer{1, "mesh(x=2)\n%1 = input i64[] number\n%2 : f32[2] = aten.mul(%0, %1)  // train.py:5\nvalues"};
  CHECK(first_difference(mine, {longer}).find("`%1 = input i64[] number` (before train.py:5)") != said.npos);
  const Account elsewhere{1, "mesh(x=2)\n%1 : f32[2] = aten.add(%0, %0)  // other.py:9\nvalues\n%0 2f"};
  CHECK(first_difference(mine, {elsewhere}).find("feed different values") != said.npos);
  for (const char* end : {"mesh(x=2)\nvalues\n%0 1f", "mesh(x=2)\n\nvalues\n%0 1f"})
    CHECK(first_difference(mine, {{1, end}}).find("process 1 has nothing more") != std::string::npos);
  const Account alive{1, "mesh(x=2)\n%1 : f32[2] = aten.add(%0, %0)  // train.py:3\nreturn %1 f32[2]\nvalues\n%0 1f"};
  CHECK(first_difference(mine, {alive}).find("process 0 has nothing more, process 1 has `return %1") != said.npos);
  CHECK(first_difference(mine, {alive}).find("gc.collect()") != said.npos);
  CHECK(said.find("gc.collect()") == said.npos);
  CHECK(first_difference(mine, {{1, mine.text}}).find("planned the same program differently") != said.npos);
}

}  // namespace spmdx
