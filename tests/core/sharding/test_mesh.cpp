// SPDX-License-Identifier: Apache-2.0
// Meshes: sub-axes, names of parts of axes, printing, and what is said of wrong ones.
#include <numeric>

#include "base/error.h"
#include "check.h"
#include "sharding/cuts.h"

using namespace spmdx;

namespace {

MeshRef iota_mesh(std::vector<int64_t> shape, std::vector<std::string> names = {}) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  std::vector<int64_t> ids(n);
  std::iota(ids.begin(), ids.end(), 0);
  return Mesh::make(ids, std::move(shape), std::move(names));
}

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const ShardingError& error) {
    return error.what();
  }
  return "threw nothing";
}

}  // namespace

TEST(mesh_sub_axes) {
  const MeshRef mesh = iota_mesh({12, 1, 2}, {"a", "one", "b"});
  CHECK_EQ(mesh->sub_axes().size(), 4u);
  const std::vector<int64_t> sizes = {3, 2, 2, 2}, pres = {1, 3, 6, 1}, strides = {8, 4, 2, 1};
  for (size_t i = 0; i < 4; ++i) {
    CHECK_EQ(mesh->sub_axes()[i].size, sizes[i]);
    CHECK_EQ(mesh->sub_axes()[i].pre, pres[i]);
    CHECK_EQ(mesh->sub_axes()[i].stride, strides[i]);
  }
  CHECK(mesh->sub_axes_of_axis(1).empty());
  CHECK_EQ(mesh->axis_index("b"), 2);
  CHECK_EQ(mesh->axis_index("c"), -1);
  CHECK_EQ(mesh->group_size(0b1101), 12);
  for (int64_t position = 0; position < mesh->size(); ++position) {
    int64_t sum = 0;
    for (size_t i = 0; i < 4; ++i) sum += mesh->digit(position, static_cast<SubAxisId>(i)) * mesh->sub_axes()[i].stride;
    CHECK_EQ(sum, position);
  }
}

TEST(mesh_text) {
  CHECK_EQ(iota_mesh({4, 2}, {"data", "model"})->str(), std::string("Mesh(data=4, model=2)"));
  CHECK_EQ(Mesh::make({3, 1}, {2})->str(), std::string("Mesh(axis0=2, ids=[3, 1])"));
  CHECK_EQ(Mesh::make({0}, {})->str(), std::string("Mesh()"));
  const MeshRef mesh = iota_mesh({8, 2}, {"model", "data"});
  CHECK_EQ(axis_names(*mesh, {0, 1, 2, 3}), (std::vector<std::string>{"model", "data"}));
  CHECK_EQ(axis_names(*mesh, {0, 1}), std::vector<std::string>{"model:(1)4"});
  CHECK_EQ(axis_names(*mesh, {2, 0}), (std::vector<std::string>{"model:(4)2", "model:(1)2"}));
  CHECK_EQ(sub_axis_list(0b1010), (SubAxisList{1, 3}));
  for (SubAxisSet set = 0; set < 16; ++set) {
    SubAxisList read;
    for (const std::string& name : axis_names(*mesh, sub_axis_list(set)))
      for (SubAxisId sub_axis : parse_axis(*mesh, name)) read.push_back(sub_axis);
    CHECK_EQ(sub_axis_set(read), set);
  }
}

TEST(mesh_equality_is_by_value) {
  CHECK(*iota_mesh({4, 2}) == *iota_mesh({4, 2}));
  CHECK_EQ(iota_mesh({4, 2})->hash(), iota_mesh({4, 2})->hash());
  CHECK(!(*iota_mesh({4, 2}) == *iota_mesh({2, 4})));
  CHECK(!(*Mesh::make({0, 1}, {2}) == *Mesh::make({1, 0}, {2})));
  CHECK(!(*iota_mesh({2}, {"a"}) == *iota_mesh({2}, {"b"})));
}

TEST(mesh_errors) {
  const auto make = [](std::vector<int64_t> ids, std::vector<int64_t> shape, std::vector<std::string> names = {}) {
    return error_of([&] { Mesh::make(ids, shape, names); });
  };
  CHECK_EQ(make({}, {0}), std::string("the mesh has no devices. Expected at least one device id. Write range(n)."));
  CHECK_EQ(make({0, 1, 1}, {3}), std::string("device id 1 is in the mesh twice. Expected every device once. Leave out "
                                             "the repeated id."));
  CHECK_EQ(make({0, -1}, {2}), std::string("device id -1 is negative. Expected ids from 0. Write the ids of existing "
                                           "devices, as range(n)."));
  CHECK_EQ(make({0, 1, 2}, {2, 2}),
           std::string("the mesh shape [2, 2] does not hold 3 devices. Expected sizes whose product (2·2) is the "
                       "number of device ids. Change the shape, or give as many ids as it holds."));
  CHECK_EQ(make({0, 1}, {2, 0}), std::string("the mesh shape [2, 0] has an axis of size 0. Expected sizes of at least "
                                             "1. Leave the axis out, or make it 1."));
  CHECK_EQ(make({0, 1}, {2}, {"a", "b"}),
           std::string("the number of axes of the mesh, 1, is not that of their names, 2: ('a', 'b'). Expected one "
                       "name for each axis. Write as many names as the shape has sizes, or none."));
  CHECK_EQ(make({0, 1}, {2, 1}, {"a", "a"}),
           std::string("the axis name 'a' is in the mesh twice: ('a', 'a'). Expected different names. Rename one of "
                       "them."));
  CHECK_EQ(make({0, 1}, {2}, {""}),
           std::string("an axis of the mesh has an empty name: ('',). Expected a name of at least one letter. Write "
                       "names like ('data', 'model')."));
  CHECK_EQ(make({0, 1}, {2}, {"a,b"}),
           std::string("the axis name 'a,b' has a character that shardings are printed with. Expected letters, digits, "
                       "'_', '-' or '.'. Write a name like 'data_parallel'."));
  CHECK(make({0, 1}, {int64_t{1} << 62, int64_t{1} << 62}).find("does not hold 2 devices") != std::string::npos);
}
