// SPDX-License-Identifier: Apache-2.0
// Reshard plans checked by brute force: what each device has before and after each move, without the planner's own idea
// of cuts.
#pragma once
#include <random>

#include "sharding/reshard/reshard.h"

namespace spmdx::test {

inline const Topology kTopology;
inline const Topology kBytesOnly{.levels = {{0, 0, 0, 1000}}};
inline const Topology kSlowMessages{.levels = {{0, 5'000, 1'000'000, 1}}};  // would rather gather than exchange

MeshRef mesh_of(std::vector<int64_t> shape, std::vector<std::string> names = {});
int64_t local_bytes(const Sharding& sharding, const Shape& shape);  // of 4-byte elements
bool contains(const Box& outer, const Box& inner);
// By the boxes of all devices: what the worst one lacks, and how many distinct shards it lies in.
std::pair<int64_t, int64_t> lacking(const Sharding& from, const Sharding& to, const Shape& shape);
// The plan ends at the goal by moves that are what their kinds say; its sums are right, and it is cheap.
void check_plan(const Shape& shape, ShardingRef from, ShardingRef to, const Topology& topology);
// A random legal sharding; parts of axes where they divide.
ShardingRef random_sharding(const MeshRef& mesh, const Shape& shape, bool tiles, std::mt19937& random);

}  // namespace spmdx::test
