// SPDX-License-Identifier: Apache-2.0
// Shardings: shards tile their dims, indices invert, notation goes round, and wrong specs are explained.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "check.h"
#include "sharding/cuts.h"
#include "sharding/notation.h"
#include "sharding/shards.h"
#include "sharding/spec.h"

using namespace spmdx;

namespace {

MeshRef mesh_like(std::vector<int64_t> shape, std::vector<std::string> names = {}) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  std::vector<int64_t> ids(n);
  std::iota(ids.begin(), ids.end(), 0);
  return Mesh::make(ids, std::move(shape), std::move(names));
}

const std::vector<std::vector<int64_t>> kMeshes = {{2}, {3}, {4}, {8}, {4, 2}, {2, 2, 2}, {3, 2}};

// Every ordered list of distinct sub-axes.
std::vector<SubAxisList> sub_axis_lists(const Mesh& mesh) {
  std::vector<SubAxisList> lists = {{}};
  for (size_t i = 0; i < lists.size(); ++i)
    for (size_t sub_axis = 0; sub_axis < mesh.sub_axes().size(); ++sub_axis) {
      SubAxisList list = lists[i];
      if (std::count(list.begin(), list.end(), sub_axis)) continue;
      list.push_back(static_cast<SubAxisId>(sub_axis));
      lists.push_back(std::move(list));
    }
  return lists;
}

std::string error_of(const PartitionSpec& spec, const MeshRef& mesh, const Shape& shape) {
  try {
    to_sharding(spec, mesh, shape, "w");
  } catch (const ShardingError& error) {
    return error.what();
  }
  return "threw nothing";
}

ShardingRef parsed(const std::string& text, const MeshRef& mesh) {
  size_t pos = 0;
  return parse_type(text, pos, mesh).second;
}

}  // namespace

TEST(shards_tile_their_dim) {
  for (const auto& shape : kMeshes) {
    const MeshRef mesh = mesh_like(shape);
    for (const SubAxisList& sub_axes : sub_axis_lists(*mesh))
      for (int64_t size = 0; size <= 9; ++size)
        for (int64_t tile : {1, 2, 3}) {
          const DimSharding dim{sub_axes, tile};
          const SubAxisSet used = sub_axis_set(sub_axes);
          const std::vector<Range> parts = pieces(*mesh, dim, size);
          CHECK_EQ(static_cast<int64_t>(parts.size()), num_distinct(*mesh, used));
          std::vector<int> seen(size);
          for (int64_t i = 0; i < num_distinct(*mesh, used); ++i) {
            const Range range = local_range(*mesh, dim, size, representative(*mesh, used, i));
            CHECK(std::count(parts.begin(), parts.end(), range) > 0);
            for (int64_t j = 0; j < range.extent; ++j) ++seen.at(range.start + j);
          }
          CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
          int64_t end = 0;
          for (const Range& range : parts) {  // in order, without gaps
            CHECK(range.start == end);
            end += range.extent;
          }
          for (int64_t p = 0; p < mesh->size(); ++p)
            CHECK(local_range(*mesh, dim, size, p).extent <= local_range(*mesh, dim, size, 0).extent);
        }
  }
}

TEST(whole_axes_cut_as_torch_chunk) {
  for (int64_t n = 2; n <= 9; ++n) {
    const MeshRef mesh = mesh_like({n});
    const DimSharding dim{mesh->sub_axes_of_axis(0), 1};
    for (int64_t size = 0; size <= 20; ++size) {
      CHECK(is_legal(*mesh, dim, size));
      const int64_t chunk = (size + n - 1) / n;
      for (int64_t p = 0; p < n; ++p) {
        const int64_t start = std::min(p * chunk, size);
        CHECK(local_range(*mesh, dim, size, p) == (Range{start, std::min(chunk, size - start)}));
      }
    }
  }
}

TEST(tiles_cut_in_units) {
  const MeshRef mesh = mesh_like({2});
  const DimSharding dim{{0}, 4};  // [3, 4] merged to 12: 2 rows and 1 row
  CHECK(local_range(*mesh, dim, 12, 0) == (Range{0, 8}));
  CHECK(local_range(*mesh, dim, 12, 1) == (Range{8, 4}));
  CHECK_EQ(intern({mesh, {dim}, 0, Reduction::none}, {12})->dims[0].tile, 4);
  CHECK_EQ(intern({mesh, {dim}, 0, Reduction::none}, {16})->dims[0].tile, 1);
  CHECK_EQ(intern({mesh, {{{}, 4}}, 0, Reduction::none}, {12})->dims[0].tile, 1);
  CHECK(!same_cuts(*mesh, dim, {{0}, 1}, 12));
}

TEST(parts_of_axes_need_even_division) {
  const MeshRef mesh = mesh_like({4, 2});
  CHECK(is_legal(*mesh, {{0, 1}, 1}, 7));
  CHECK(is_legal(*mesh, {{0}, 1}, 6));
  CHECK(!is_legal(*mesh, {{0}, 1}, 7));
  CHECK(!is_legal(*mesh, {{1, 0}, 1}, 6));
  CHECK(is_legal(*mesh, {{2, 0}, 1}, 4));
  CHECK(!is_legal(*mesh, {{2, 0}, 1}, 3));
  // Half of an axis cuts 6 into 3 and 3, all of it into 2, 2, 2, 0: neither is got from the other in place.
  CHECK(!refines(*mesh, {{0, 1}, 1}, {{0}, 1}, 6));
  CHECK(refines(*mesh, {{0, 1}, 1}, {{}, 1}, 6));
}

TEST(gathering_whole_axes_lands_on_the_prefix) {
  for (const auto& shape : kMeshes) {
    const MeshRef mesh = mesh_like(shape);
    for (size_t a = 0; a < shape.size(); ++a)
      for (size_t b = 0; b < shape.size(); ++b) {
        if (a == b) continue;
        SubAxisList prefix = mesh->sub_axes_of_axis(static_cast<int>(a)), full = prefix;
        for (SubAxisId sub_axis : mesh->sub_axes_of_axis(static_cast<int>(b))) full.push_back(sub_axis);
        for (int64_t size = 0; size <= 9; ++size) CHECK(refines(*mesh, {full, 1}, {prefix, 1}, size));
      }
  }
}

TEST(distinct_indices_invert) {
  for (const auto& shape : kMeshes) {
    const MeshRef mesh = mesh_like(shape);
    for (SubAxisSet used = 0; used < SubAxisSet{1} << mesh->sub_axes().size(); ++used) {
      for (int64_t i = 0; i < num_distinct(*mesh, used); ++i)
        CHECK_EQ(distinct_index(*mesh, used, representative(*mesh, used, i)), i);
      for (int64_t p = 0; p < mesh->size(); ++p) {
        const int64_t first = representative(*mesh, used, distinct_index(*mesh, used, p));
        for (size_t sub_axis = 0; sub_axis < mesh->sub_axes().size(); ++sub_axis)
          CHECK_EQ(mesh->digit(first, static_cast<SubAxisId>(sub_axis)),
                   used >> sub_axis & 1 ? mesh->digit(p, static_cast<SubAxisId>(sub_axis)) : 0);
      }
    }
  }
}

TEST(interning) {
  const MeshRef mesh = mesh_like({4, 2}), same = mesh_like({4, 2});
  const ShardingRef a = intern({mesh, {{{0, 1}, 1}, {}}, 0b100, Reduction::sum}, {8, 8});
  CHECK(a == intern({same, {{{0, 1}, 1}, {}}, 0b100, Reduction::sum}, {8, 8}));
  CHECK(a != intern({mesh, {{{0, 1}, 1}, {}}, 0b100, Reduction::max}, {8, 8}));
  CHECK(a != intern({mesh, {{{1, 0}, 1}, {}}, 0b100, Reduction::sum}, {8, 8}));
  CHECK(replicated(mesh, 2) == intern({mesh, {{}, {}}, 0, Reduction::none}, {3, 3}));
  CHECK_EQ(a->used(), SubAxisSet{0b111});
  CHECK_EQ(a->dim_sub_axes(), SubAxisSet{0b011});
  CHECK(local_box(*a, {8, 3}, 7) == (Box{{6, 2}, {0, 3}}));
  CHECK_EQ(max_local_numel(*a, {7, 3}), 6);
  CHECK_THROWS(InternalError, intern({mesh, {{{0, 0}, 1}}, 0, Reduction::none}, {8}), "uses a sub-axis twice");
  CHECK_THROWS(InternalError, intern({mesh, {{}}, 1, Reduction::none}, {8}), "disagree");
}

TEST(notation_round_trips) {
  const MeshRef mesh = mesh_like({2, 8, 2, 2}, {"data", "model", "seq", "expert"});
  for (const std::string text :
       {"f32[64@data, 128@(model,seq), 7]{partial sum: expert}", "bf16[]", "i64[7@model]",
        "f32[12@data/4, 128@model:(1)2]", "f32[16@(model:(4)2,model:(1)2)]", "f32[24@(data,model)/6]",
        "f32[]{partial max: data,expert}", "b8[0@data]", "f32[4]{partial any: model:(2)4}", "f32[4] on seq=1",
        "f32[64@data, 8]{partial sum: expert} on seq=3", "f32[4@data] on host", "f32[4] on seq=1 host"}) {
    size_t pos = 0;
    const auto [type, sharding] = parse_type(text + " = x", pos, mesh);
    CHECK_EQ(str(type, sharding), text);
    CHECK_EQ(pos, text.size());
  }
  CHECK(parsed("f32[64, 128]", mesh) == nullptr);
  CHECK_EQ(str({DType::f32, {64, 2}, false}, replicated(mesh, 2)), std::string("f32[64, 2]"));
}

TEST(notation_errors) {
  const MeshRef mesh = mesh_like({2, 4}, {"data", "model"});
  const std::string mend = "Write types as f32[64@data, 128@(model,seq)/4, 7]{partial sum: expert}.";
  CHECK_THROWS(ShardingError, parsed("q32[4]", mesh),
               "'q32' is not a dtype at column 1 of 'q32[4]'. Expected a type like f32[64, 128]. " + mend);
  CHECK_THROWS(ShardingError, parsed("f32[4@seq]", mesh),
               "Mesh(data=2, model=4) has no axis 'seq'. Expected one of 'data', 'model'. Write one of these names.");
  CHECK_THROWS(ShardingError, parsed("f32[4@(data,data)]", mesh), "an axis used twice at column 17 of ");
  CHECK_THROWS(ShardingError, parsed("f32[4@data] on data=1", mesh),
               "the axis of the place cuts a dim at column 22 of ");
  CHECK_THROWS(ShardingError, parsed("f32[4] on pipe=1", mesh), "'pipe' is no axis of Mesh(data=2, model=4)");
  CHECK_THROWS(ShardingError, parsed("f32[4] on data=-1", mesh), "a place of axis 'data' has no stage between 0 and ");
  CHECK_THROWS(ShardingError, parsed("f32[4@data", mesh), "something else at column 11 of 'f32[4@data'. Expected ','.");
  CHECK_THROWS(ShardingError, parsed("f32[4@data/0]", mesh), "a tile of 0");
  CHECK_THROWS(ShardingError, parsed("f32[]{partial avg: data}", mesh), "'avg' is not a reduction");
  CHECK_THROWS(ShardingError, parsed("f32[3@model:(1)2]", mesh), "dim 0 is cut by a part of an axis that does not");
  CHECK_THROWS(ShardingError, parsed("f32[4@model:(3)2]", mesh),
               "'model:(3)2' is not a part of axis 'model' of Mesh(data=2, model=4). Expected name:(p)k where p and "
               "p·k are products of the first prime factors of 4. Write 'model' for the whole axis.");
  CHECK_THROWS(ShardingError, parsed("f32[4@data]", nullptr), "an axis in a type without a mesh");
}

TEST(specs) {
  const MeshRef mesh = mesh_like({4, 2, 1}, {"data", "model", "one"});
  const PartitionSpec spec{{{std::string("model"), int64_t{0}}, {}, {std::string("one")}}};
  CHECK_EQ(str(spec), std::string("(('model', 0), None, 'one')"));
  const ShardingRef sharding = to_sharding(spec, mesh, {16, 3, 5}, "w");
  CHECK_EQ(str({DType::f32, {16, 3, 5}, false}, sharding), std::string("f32[16@(model,data), 3, 5]"));
  CHECK_EQ(str(to_spec(*sharding)), std::string("(('model', 'data'), None, None)"));
  CHECK(to_sharding(to_spec(*sharding), mesh, {16, 3, 5}, "w") == sharding);
  CHECK_EQ(str(PartitionSpec{}), std::string("()"));
  CHECK_EQ(str(PartitionSpec{{{int64_t{1}}}}), std::string("(1,)"));
  const ShardingRef part = intern({mesh, {{{1}, 1}}, 0, Reduction::none}, {4});
  CHECK_EQ(str(to_spec(*part)), std::string("('data:(2)2',)"));
  CHECK(to_sharding(to_spec(*part), mesh, {4}, "w") == part);
}

TEST(spec_errors) {
  const MeshRef mesh = mesh_like({4, 2}, {"data", "model"});
  const std::string data = "data", model = "model";
  CHECK_EQ(error_of({{{data}, {}, {model}}}, mesh, {8, 8}),
           std::string("dim 2 of w does not exist, so there is no room for axis 'model': w has rank 2, but its "
                       "partition spec ('data', None, 'model') has 3 entries. Expected 2 entries, one for each dim. "
                       "Write ('data', 'model')."));
  CHECK_EQ(error_of({{{data}}}, mesh, {8, 8}),
           std::string("w has rank 2, but its partition spec ('data',) has 1 entry. Expected 2 entries, one for each "
                       "dim. Write ('data', None)."));
  CHECK_EQ(error_of({{{data}}}, mesh, {}),
           std::string("dim 0 of w does not exist, so there is no room for axis 'data': w has rank 0, but its "
                       "partition spec ('data',) has 1 entry. Expected 0 entries, one for each dim. Write ()."));
  CHECK_EQ(error_of({{{}, {std::string("modle")}}}, mesh, {8, 8}),
           std::string("dim 1 of w is to be cut by axis 'modle', which Mesh(data=4, model=2) does not have. Expected "
                       "one of 'data', 'model'. Write 'model' instead of 'modle'."));
  CHECK_EQ(error_of({{{std::string("x")}}}, mesh, {8}),
           std::string("dim 0 of w is to be cut by axis 'x', which Mesh(data=4, model=2) does not have. Expected one "
                       "of 'data', 'model'. Write one of these names, or None to leave the dim whole."));
  CHECK_EQ(error_of({{{int64_t{2}}}}, mesh, {8}),
           std::string("dim 0 of w is to be cut by axis 2, but Mesh(data=4, model=2) has 2 axes. Expected an index "
                       "from 0 to 1 or a name of an axis. Write 1 or 'model' instead of 2."));
  CHECK_EQ(error_of({{{int64_t{-1}}}}, mesh, {8}),
           std::string("dim 0 of w is to be cut by axis -1, a negative index. Expected an index from 0 to 1 or a name "
                       "of an axis. Write 1 or 'model' instead of -1."));
  CHECK_EQ(error_of({{{data}, {int64_t{0}}}}, mesh, {8, 8}),
           std::string("axis 'data' cuts w in dim 0 and in dim 1: ('data', 0). Expected every axis at most once. Write "
                       "('data', None)."));
  CHECK_EQ(error_of({{{data, data}}}, mesh, {8}),
           std::string("axis 'data' cuts w twice in dim 0: (('data', 'data'),). Expected every axis at most once. "
                       "Write ('data',)."));
  CHECK_EQ(error_of({{{std::string("data:(1)2")}}}, mesh, {7}),
           std::string("dim 0 of w, of size 7, is to be cut by a part of an axis that does not divide it: 'data:(1)2'. "
                       "Expected whole axes, or parts that divide evenly. Write the whole axis, or None."));
}
