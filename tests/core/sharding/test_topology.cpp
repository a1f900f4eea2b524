// SPDX-License-Identifier: Apache-2.0
// Topologies: which links a group needs, what that costs, and plans that keep bytes inside fast blocks.
#include <numeric>

#include "base/error.h"
#include "check.h"
#include "sharding/notation.h"
#include "sharding/reshard/reshard.h"
#include "sharding/topology_file.h"

using namespace spmdx;

namespace {

std::vector<int64_t> iota(int64_t n) {
  std::vector<int64_t> ids(n);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// Fast inside blocks of `devices` ids (0: what the mesh calls inner), 50 times slower between them.
Topology two_levels(int64_t devices) { return {.levels = {{devices, 5'000, 50, 10}, {0, 20'000, 50, 500}}}; }

std::vector<int> levels(const MeshRef& mesh, const Topology& topology) {
  const std::vector<uint8_t>& found = sub_axis_levels(mesh, topology);
  return {found.begin(), found.end()};
}

std::string plan_of(const MeshRef& mesh, const std::string& from, const std::string& to, const Topology& topology) {
  size_t at = 0, end = 0;
  const auto [type, source] = parse_type(from, at, mesh);
  const ShardingRef target = parse_type(to, end, mesh).second;
  const ReshardPlanRef plan =
      plan_reshard(type.dtype, type.shape, source ? source : replicated(mesh, type.shape.size()),
                   target ? target : replicated(mesh, type.shape.size()), topology);
  std::string out;
  for (const Move& move : plan->moves) {
    out += (out.empty() ? "" : ", ") + std::string(name(move.kind));
    for (const std::string& axis : axis_names(*mesh, sub_axis_list(move.sub_axes))) out += " " + axis;
  }
  return out;
}

}  // namespace

TEST(levels_of_sub_axes_by_device_ids) {
  const MeshRef mesh = Mesh::make(iota(16), {4, 4}, {"a", "b"});
  CHECK_EQ(levels(mesh, two_levels(4)), (std::vector<int>{1, 1, 0, 0}));
  CHECK_EQ(levels(mesh, two_levels(8)), (std::vector<int>{1, 0, 0, 0}));
  CHECK_EQ(levels(mesh, two_levels(16)), (std::vector<int>{0, 0, 0, 0}));
  CHECK_EQ(levels(mesh, two_levels(1)), (std::vector<int>{1, 1, 1, 1}));
  CHECK_EQ(levels(mesh, Topology{}), (std::vector<int>{0, 0, 0, 0}));
  const MeshRef mixed = Mesh::make({0, 4, 1, 5}, {2, 2}, {"a", "b"});
  CHECK_EQ(levels(mixed, two_levels(4)), (std::vector<int>{0, 1}));
  CHECK_EQ(level_of(sub_axis_levels(mixed, two_levels(4)), 1), 0u);
  CHECK_EQ(level_of(sub_axis_levels(mixed, two_levels(4)), 3), 1u);
}

TEST(levels_of_sub_axes_by_the_mesh) {
  const MeshRef mesh = Mesh::make(iota(12), {6, 2}, {"a", "b"}, {3, 1});
  CHECK_EQ(mesh->str(), std::string("Mesh(a=3*2, b=2)"));
  CHECK_EQ(mesh->sub_axes()[0].size, 3);  // the outer part comes first, whatever its size
  CHECK_EQ(levels(mesh, two_levels(0)), (std::vector<int>{1, 0, 0}));
  CHECK(!(*mesh == *Mesh::make(iota(12), {6, 2}, {"a", "b"})));
  CHECK(mesh->hash() != Mesh::make(iota(12), {6, 2}, {"a", "b"})->hash());
  CHECK_THROWS(ShardingError, Mesh::make(iota(6), {6}, {"a"}, {4}),
               "the outer shape [4] is no part of the mesh shape [6]. Expected for each axis a divisor of its size. "
               "Write 1 for an axis inside the fast blocks.");
}

TEST(cost_is_latency_messages_and_bytes) {
  const Topology topology = two_levels(4);
  CHECK_EQ(topology.cost_ns(Collective::all_gather, 1'000'000, Group(8, 0)), 5'000 + 3 * 50 + 10'000);
  CHECK_EQ(topology.cost_ns(Collective::all_gather, 1'000'000, Group(8, 1)), 20'000 + 3 * 50 + 500'000);
  CHECK_EQ(topology.cost_ns(Collective::all_reduce, 1'000, Group(5, 0)), 5'000 + 3 * 50 + 10);
  CHECK_EQ(topology.cost_ns(Collective::all_to_all, 1'000, Group(8, 0)), 5'000 + 7 * 50 + 10);
  CHECK_EQ(topology.cost_ns(Collective::send_recv, 1'000, Group(8, 0)), 5'000 + 14 * 50 + 10);
  CHECK_EQ(topology.cost_ns(Collective::slice, 1'000, Group(8, 1)), 0);
  CHECK_EQ(topology.cost_ns(Collective::all_gather, 0, Group(8, 1)), 0);
  CHECK_EQ(Topology{}.cost_ns(Collective::all_gather, int64_t{1} << 60), 5'050 + (int64_t{1} << 59));
}

TEST(bytes_take_the_time_of_the_share_that_so_many_reach) {
  Topology topology = two_levels(4);
  topology.levels[0].efficiency = {{1'000, 0.5}, {3'000, 0.25}};
  const auto bytes_ns = [&](int64_t bytes) {
    return topology.cost_ns(Collective::all_gather, bytes, Group(2, 0)) -
           topology.cost_ns(Collective::all_gather, 1, Group(2, 0));
  };
  CHECK_EQ(bytes_ns(100), 1 * 2);  // at 10 ns a 1000 bytes
  CHECK_EQ(bytes_ns(1'000), 10 * 2);
  CHECK_EQ(bytes_ns(2'000), 53);  // 20 / 0.375
  CHECK_EQ(bytes_ns(6'000), 60 * 4);
  CHECK_EQ(topology.cost_ns(Collective::all_gather, 1'000'000, Group(8, 1)), 20'000 + 3 * 50 + 500'000);
  check(topology);
  topology.levels[1].efficiency = {{1'000, 0.25}, {1'500, 0.5}};
  CHECK_THROWS(
      ShardingError, check(topology),
      "by the efficiency of level 1, work of 1500 takes less time than work of 1000. Expected shares that grow "
      "no faster than sizes. Add points between them, or lower the share at 1500.");
}

TEST(native_collectives_take_a_multiple_of_the_time_of_messages) {
  const Topology direct = two_levels(4);
  Topology told = direct;
  told.levels[1].native_gathers = {{1000, 2}, {3000, 1}, {5000, 0.25}};
  told.levels[1].native_sums = {{0, 0.5}};
  const Group within(4), between(4, 1);
  const auto times = [&](Collective kind, int64_t bytes) {
    return static_cast<double>(told.cost_ns(kind, bytes, between)) /
           static_cast<double>(direct.cost_ns(kind, bytes, between));
  };
  for (const auto& [bytes, share] : {std::pair{500, 1.0}, {2000, 1.0}, {4000, 0.625}, {9000, 0.25}})
    CHECK(std::abs(times(Collective::all_gather, bytes) - share) < 1e-3);
  for (const int64_t bytes : {1, 1000, 1'000'000}) {
    CHECK(std::abs(times(Collective::all_reduce, bytes) - 0.5) < 1e-3);
    CHECK_EQ(times(Collective::reduce_scatter, bytes), 1);  // no half of an all_reduce
    CHECK_EQ(times(Collective::all_to_all, bytes), 1);      // backends have it, but spmdx does not call it
    CHECK_EQ(told.cost_ns(Collective::all_reduce, bytes, within),
             direct.cost_ns(Collective::all_reduce, bytes, within));
  }
  told.natives.sums = false;
  CHECK_EQ(times(Collective::all_reduce, 1000), 1);
  CHECK(std::abs(times(Collective::all_gather, 9000) - 0.25) < 1e-3);
  told.natives.way = Way::direct;
  CHECK_EQ(times(Collective::all_gather, 9000), 1);
  CHECK_EQ(told.least_share(), 1);
  told.natives = {Way::native, Way::direct, true};
  CHECK(std::abs(times(Collective::all_gather, 500) - 2) < 1e-3);
  CHECK_EQ(told.least_share(), 0.25);
}

TEST(collectives_go_the_way_that_takes_less_time) {
  Topology topology = two_levels(4);
  const Group between(4, 1);
  const auto way = [&](int64_t bytes, int64_t count = 1, Collective kind = Collective::all_reduce) {
    return topology.way_of(count, kind, bytes, between);
  };
  CHECK(way(1000) == Way::direct);
  topology.natives.unmeasured = Way::native;
  CHECK(way(1000) == Way::native);
  CHECK(way(1000, 1, Collective::reduce_scatter) == Way::native);
  CHECK(way(1000, 1, Collective::collective_permute) == Way::direct);
  topology.levels[1].native_sums = {{1000, 1.5}, {100'000, 0.9}};
  CHECK(way(1000) == Way::direct);
  CHECK(way(100'000) == Way::native);
  CHECK(way(100'000, 30) == Way::direct);  // each of the 30 starts by itself
  CHECK(topology.cost_ns(Way::native, 30, Collective::all_reduce, 100'000, between) >
        20 * topology.levels[1].latency_ns);
  topology.natives.sums = false;
  CHECK(way(100'000) == Way::direct);
  topology.natives = {Way::native, Way::direct, true};
  CHECK(way(1) == Way::native);
}

TEST(devices_that_share_processors_take_as_long_as_all_of_them_work) {
  Topology topology = two_levels(4);
  CHECK_EQ(topology.shared_ns(900, 1'000, 8), 1'000);
  topology.processors = 2;
  CHECK_EQ(topology.shared_ns(900, 1'000, 8), 900);  // those that wait leave theirs
  CHECK_EQ(topology.shared_ns(100, 1'000, 8), 250);  // each alone is four times as fast as all at once
  CHECK_EQ(topology.shared_ns(100, 1'000, 2), 1'000);
  CHECK_EQ(topology.shared_ns(1'200, 1'000, 2), 1'200);  // with what each does for the others
}

TEST(sums_across_blocks_are_hierarchical_where_that_is_cheaper) {
  const MeshRef mesh = Mesh::make(iota(16), {16}, {"data"});
  const std::string partial = "{partial sum: data}";
  const Topology wide = two_levels(8), network = topology_named("infiniband");
  const std::string scattered = "reduce_scatter data:(2)8, all_reduce data:(1)2, all_gather data:(2)8";
  CHECK_EQ(plan_of(mesh, "f32[4096, 4096]" + partial, "f32[4096, 4096]", wide), scattered);
  CHECK_EQ(plan_of(mesh, "f32[4096, 4096]" + partial, "f32[4096, 4096]", network), scattered);
  CHECK_EQ(plan_of(mesh, "f32[4]" + partial, "f32[4]", wide), std::string("all_reduce data"));
  CHECK_EQ(plan_of(mesh, "f32[]" + partial, "f32[]", wide), std::string("all_reduce data"));
  // No dim can be cut in 8 equal parts. Still fewer bytes cross the slow links: two rounds instead of one.
  CHECK_EQ(plan_of(mesh, "f32[4097, 4097]" + partial, "f32[4097, 4097]", wide),
           std::string("all_reduce data:(2)8, all_reduce data:(1)2"));
  CHECK_EQ(plan_of(mesh, "f32[4096, 4096]" + partial, "f32[4096, 4096]", Topology{}), std::string("all_reduce data"));
}

TEST(an_axis_over_any_number_of_blocks_has_its_devices_within_them) {
  const Topology topology = topology_named("infiniband");  // blocks of 8
  for (const int64_t blocks : {2, 3, 5, 6, 7, 9, 12}) {
    const MeshRef one = Mesh::make(iota(blocks * 8), {blocks * 8}, {"data"});
    const MeshRef two = Mesh::make(iota(blocks * 8), {blocks, 8}, {"outer", "inner"});
    const SubAxisSet all = sub_axis_set(one->sub_axes_of_axis(0));
    const SubAxisSet both = sub_axis_set(two->sub_axes_of_axis(0)) | sub_axis_set(two->sub_axes_of_axis(1));
    const Group whole = group_of(*one, sub_axis_levels(one, topology), all);
    CHECK(whole.sizes == group_of(*two, sub_axis_levels(two, topology), both).sizes);
    CHECK_EQ(whole.sizes[0], 8);
    CHECK_EQ(whole.sizes[1], blocks);
  }
}

TEST(a_hybrid_mesh_needs_no_block_size) {
  const MeshRef mesh = Mesh::make(iota(12), {6, 2}, {"data", "model"}, {3, 1});
  CHECK_EQ(plan_of(mesh, "f32[4096, 4096]{partial sum: data}", "f32[4096, 4096]", two_levels(0)),
           std::string("reduce_scatter data:(3)2, all_reduce data:(1)3, all_gather data:(3)2"));
  CHECK_EQ(plan_of(mesh, "f32[4096, 4096]{partial sum: data,model}", "f32[4096, 4096]", two_levels(0)),
           std::string("reduce_scatter data:(3)2 model, all_reduce data:(1)3, all_gather data:(3)2 model"));
}

// 8 devices of each of 16 blocks, as NCCL goes: devices of a block share what leaves it.
TEST(rings_take_turns_and_trees_take_little) {
  const Level fast{8, 8'000, 500, 4, Algorithm::ring}, slow{0, 15'000, 2'000, 40, Algorithm::ring};
  const Topology topology{.levels = {fast, slow}};
  Group both;
  both.sizes[0] = 8, both.sizes[1] = 16;
  CHECK_EQ(both.size(), 128);
  CHECK_EQ(both.level(), 1u);
  constexpr int64_t kMany = int64_t{127} << 20;
  // Seven of eight steps stay inside of a block; every device sends an eighth of what leaves it.
  CHECK_EQ(topology.cost_ns(Collective::all_gather, kMany, both),
           15'000 + 15 * 2'000 + 16 * 7 * 500 + kMany * 40 / 8 / 1000);
  CHECK_EQ(topology.cost_ns(Collective::all_reduce, 4 * kMany, both),
           15'000 + 2 * (15 * 2'000 + 16 * 7 * 500) + 4 * kMany * 40 / 8 / 1000);
  // Where links inside are the slower ones, by these.
  const Topology even{.levels = {{8, 8'000, 500, 40, Algorithm::ring}, slow}};
  CHECK_EQ(even.cost_ns(Collective::all_gather, kMany, both), 15'000 + 15 * 2'000 + 16 * 7 * 500 + kMany * 40 / 1000);
  // One device of a block has all of it.
  CHECK_EQ(topology.cost_ns(Collective::reduce_scatter, kMany, Group(16, 1)), 15'000 + 15 * 2'000 + kMany * 40 / 1000);
  // A small sum goes up and down: 4 levels of a tree in place of 15 steps, three in place of seven inside.
  CHECK_EQ(topology.cost_ns(Collective::all_reduce, 254, both), 15'000 + 2 * (4 * 2'000 + 3 * 500) + 1);
  // Exchanges of peers are as they were.
  CHECK_EQ(topology.cost_ns(Collective::all_to_all, 1'000, Group(8, 0)), 8'000 + 7 * 500 + 4);
}

// The size from which rings are faster lies where that of NCCL does, at some hundred KiB a device.
TEST(trees_turn_into_rings_once) {
  const Topology topology{.levels = {{0, 14'000, 4'000, 40, Algorithm::ring}}};
  const Group group(16);
  const auto is_ring = [&](int64_t bytes) {
    return topology.cost_ns(Collective::all_reduce, bytes, group) == 14'000 + 2 * 15 * 4'000 + bytes * 40 / 1000;
  };
  int64_t turns = 0;
  bool before = is_ring(1);
  CHECK_EQ(before, false);
  for (int64_t bytes = 2; bytes < int64_t{1} << 32; bytes *= 2)
    if (is_ring(bytes) != before) before = !before, ++turns;
  CHECK_EQ(turns, 1);
}

TEST(groups_of_sub_axes) {
  const MeshRef mesh = Mesh::make(iota(16), {4, 4}, {"a", "b"});
  const auto sizes = [&](SubAxisSet sub_axes) {
    const Group group = group_of(*mesh, sub_axis_levels(mesh, two_levels(8)), sub_axes);
    return std::vector<int64_t>{group.sizes[0], group.sizes[1]};
  };
  CHECK_EQ(sizes(mesh->all_sub_axes()), (std::vector<int64_t>{8, 2}));
  CHECK_EQ(sizes(1), (std::vector<int64_t>{1, 2}));
  CHECK_EQ(sizes(0b1100), (std::vector<int64_t>{4, 1}));
  CHECK_EQ(group_of(*mesh, sub_axis_levels(mesh, two_levels(8)), 0).size(), 1);
}

TEST(named_topologies) {
  for (std::string_view name : topology_names()) {
    const Topology topology = topology_named(name);
    CHECK(!topology.levels.empty() && topology.levels.back().devices == 0);
    CHECK_EQ(topology_id(topology), topology_id(topology_named(name)));
  }
  CHECK(topology_named("in-process") == Topology{});
  CHECK_THROWS(ShardingError, topology_named("carrier pigeon"),
               "no topology is called 'carrier pigeon'. Expected one of 'in-process', 'gloo', 'nvlink', 'infiniband'. "
               "Write one of these names, or load a file.");
}

TEST(topology_files_say_what_differs_from_in_process) {
  const Topology read = parse_topology(R"({"name": "two racks",
    "levels": [{"devices": 8, "latency_ns": 8000, "message_ns": 500, "picoseconds_per_byte": 4},
               {"latency_ns": 15000, "algorithm": "ring", "efficiency": [[1e6, 0.5], [1e8, 1]],
                "processor_usage": 0.25}],
    "processors": 2, "record_ns": 700,
    "hardware": {"name": "fast", "memory_bytes_per_second": 3.35e12, "flops_per_second": {"f32": 67e12, "bf16": 989e12},
                 "product_efficiency": [[1e9, 0.5], [1e12, 1]], "memory_efficiency": [], "launch_ns": 900,
                 "packing_bytes_per_second": 2e10}})");
  const Hardware fast{.name = "fast",
                      .memory_bytes_per_second = 3.35e12,
                      .memory_efficiency = {},
                      .flops_per_second = {{DType::f32, 67e12}, {DType::bf16, 989e12}},
                      .product_efficiency = {{1e9, 0.5}, {1e12, 1}},
                      .launch_ns = 900,
                      .packing_bytes_per_second = 2e10};
  CHECK_EQ(read == (Topology{.levels = {{8, 8'000, 500, 4},
                                        {0, 15'000, 50, 500, Algorithm::ring, {{1e6, 0.5}, {1e8, 1}}, 0.25}},
                             .hardware = fast,
                             .processors = 2,
                             .record_ns = 700}),
           true);
  CHECK_EQ(topology_from("gloo") == topology_named("gloo"), true);
}

TEST(topology_files_that_are_none_are_refused) {
  const auto refused = [](const std::string& text, const std::string& why) {
    CHECK_THROWS(ShardingError, parse_topology(text), why);
  };
  refused("", "found the end of the line. Expected '{'.");
  refused("[]\n[]", "found '[]'. Expected '{'.");
  refused(R"({"name": "x"})", "it has no name or no levels. Expected both.");
  refused(R"({"name": "x", "levels": []})", "found ']}'. Expected '{'.");
  refused(R"({"name": "x", "levels": [{"algorithm": "hope"}]})", "no algorithm is called 'hope'. Expected 'doubling'");
  refused(R"({"name": "x", "levels": [{},{},{},{},{},{},{},{},{}]})", "the topology has 9 levels. Expected at most 8.");
  refused(R"({"name": "x", "levels": [{"latency": 1}]})", "found 'latency'. Expected one of devices, latency_ns");
  refused(R"({"name": "x", "levels": [{"devices": -1}]})", "devices is out of range. Expected at least 0 and below");
  refused(R"({"name": "x", "levels": [{"message_ns": 0.5}]})", "found '.5}]}'. Expected '}'.");
  refused(R"({"name": "x", "levels": [{"efficiency": [[1e6, 2]]}]})", "a share of the efficiency of level 0 is 2.");
  refused(R"({"name": "x", "levels": [{}, {"processor_usage": 1.5}]})",
          "processor_usage of level 1 is 1.500000. Expected from 0 to 1. Write 0 for links that carry by themselves.");
  const auto refused_hardware = [&](const std::string& fields, const std::string& why) {
    refused(R"({"name": "x", "levels": [{}], "hardware": {)" + fields + "}}", why);
  };
  refused_hardware(R"("memory_bytes": 80)", "memory_bytes is 80. Expected bytes of a device, from 1048576 to 1e+18");
  refused_hardware(R"("memory_bytes_per_second": NaN)", "memory_bytes_per_second is nan. Expected bytes in a second");
  refused_hardware(R"("flops_per_second": {})", "flops_per_second is empty. Expected at least one dtype.");
  refused_hardware(R"("flops_per_second": {"tf32": 1e12})", "found 'tf32'. Expected one of the dtypes, as f32");
  refused_hardware(R"("flops_per_second": {"f32": 67})", "flops_per_second of f32 is 67. Expected operations");
  refused_hardware(R"("product_efficiency": [[1e9, 1.5]])", "a share of product_efficiency is 1.5. Expected a share");
  refused_hardware(R"("product_efficiency": [[2, 1], [1, 1]])", "the sizes of product_efficiency are not in order");
  refused_hardware(R"("memory_efficiency": [[1, 0.1], [2, 0.3]])",
                   "by memory_efficiency, work of 2 takes less time than work of 1. Expected shares that grow no");
  refused_hardware(R"("speed": 1)", "found 'speed'. Expected one of name, memory_bytes");
  refused(R"({"name": "x", "levels": [{}], "speed": 1})", "found 'speed'. Expected one of name, levels");
  refused(R"({"name": "x", "levels": [{}]} {})", "found '{}'. Expected the end.");
  CHECK_THROWS(ShardingError, topology_from("no/such/file"), "no topology is called 'no/such/file'");
}
