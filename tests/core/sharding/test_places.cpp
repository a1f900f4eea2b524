// SPDX-License-Identifier: Apache-2.0
// Places: positions along stage axes, and which processes hold what lies there.
#include "base/error.h"
#include "check.h"
#include "sharding/place.h"
#include "sharding/processes.h"
#include "sharding/sharding.h"

namespace spmdx {
namespace {

MeshRef cube() { return Mesh::make({0, 1, 2, 3, 4, 5, 6, 7}, {2, 2, 2}, {"data", "pipe", "model"}); }

TEST(places_hold_one_coordinate_and_stages_go_round) {
  const MeshRef mesh = cube();
  const Place first{1, 0}, second{1, 1}, third{1, 2};
  for (int64_t position = 0; position < 8; ++position) {
    CHECK(lies_at(*mesh, {}, position));
    CHECK_EQ(lies_at(*mesh, first, position), position / 2 % 2 == 0);
    CHECK_EQ(lies_at(*mesh, second, position), position / 2 % 2 == 1);
    CHECK_EQ(lies_at(*mesh, third, position), position / 2 % 2 == 0);
    CHECK(lies_at(*mesh, second, moved_to(*mesh, second, position)));
    CHECK_EQ(moved_to(*mesh, second, position) % 2, position % 2);
    CHECK_EQ(moved_to(*mesh, second, position) / 4, position / 4);
  }
  CHECK(same_devices(*mesh, first, third));
  CHECK(!same_devices(*mesh, first, second));
  CHECK(!same_devices(*mesh, first, {}));
  CHECK_EQ(size_of(*mesh, second), 4);
  CHECK_EQ(size_of(*mesh, {}), 8);
}

TEST(processes_hold_the_shards_of_their_devices_on_a_place) {
  const MeshRef mesh = cube();
  const SubAxisSet model = sub_axis_set(mesh->sub_axes_of_axis(2));
  const Processes processes{4, 0, 2};  // process 0: both shards of stage 0, at data = 0
  CHECK_EQ(held_by(processes, 0, *mesh, model, {1, 0}).size(), size_t{2});
  CHECK_EQ(held_by(processes, 0, *mesh, model, {1, 1}).size(), size_t{0});
  CHECK_EQ(held_by(processes, 1, *mesh, model, {1, 1}).size(), size_t{2});
  CHECK(held_everywhere(processes, *mesh, model));
  CHECK(!held_everywhere(processes, *mesh, model, {1, 1}));
}

TEST(a_place_is_a_part_of_a_sharding) {
  const MeshRef mesh = cube();
  const ShardingRef whole = replicated(mesh, 2), there = on(whole, {1, 1});
  CHECK(there != whole);
  CHECK(everywhere(there) == whole);
  CHECK(on(there, {1, 1}) == there);
  CHECK(at_stage(whole, "pipe", 1) == there);
  CHECK_THROWS(ShardingError, at_stage(whole, "stage", 1), "'stage=1' is no place of Mesh(data=2, pipe=2, model=2).");
  Sharding cut = *whole;
  cut.dims[0].sub_axes = mesh->sub_axes_of_axis(1);
  const ShardingRef by_pipe = intern(std::move(cut), {4, 4});
  CHECK_THROWS(ShardingError, at_stage(by_pipe, "pipe", 1), "axis 'pipe' cuts a dim of the tensor");
}

}  // namespace
}  // namespace spmdx
