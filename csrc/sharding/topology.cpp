// SPDX-License-Identifier: Apache-2.0
// The time that collectives take over the links of a topology, and which links a mesh needs.
#include "sharding/topology.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/error.h"

namespace spmdx {
namespace {

__extension__ using Wide = __int128;

struct NamedTopology {
  std::string_view name;
  Topology topology;
};

// Orders of magnitude, for plans made before anything was measured: a device's own share of each kind of link.
const std::vector<NamedTopology>& named() {
  constexpr Level kNvlink{0, 8'000, 500, 4};          // 250 GB/s
  constexpr Level kNvlinkNode{8, 8'000, 500, 4};      // the same, in nodes of 8
  constexpr Level kInfiniband{0, 15'000, 2'000, 40};  // 25 GB/s
  constexpr Level kGloo{0, 60'000, 20'000, 800};      // 1.25 GB/s
  static const Hardware gpu{.name = "gpu", .memory_bytes_per_second = 1e12, .flops_per_second = {{DType::f32, 100e12}}};
  static const std::vector<NamedTopology> all = {{"in-process", {}},
                                                 {"gloo", {.levels = {kGloo}}},
                                                 {"nvlink", {{kNvlink}, gpu}},
                                                 {"infiniband", {{kNvlinkNode, kInfiniband}, gpu}}};
  return all;
}

// Devices that differ along the sub-axis alone lie in one block of the level.
bool stays_within(const Mesh& mesh, const SubAxis& sub_axis, const Level& level) {
  if (level.devices <= 0) return !sub_axis.outer;
  const std::vector<int64_t>& ids = mesh.device_ids();
  for (int64_t position = 0; position < mesh.size(); ++position) {
    const int64_t first = position - position / sub_axis.stride % sub_axis.size * sub_axis.stride;
    if (ids[position] / level.devices != ids[first] / level.devices) return false;
  }
  return true;
}

std::vector<uint8_t> find_levels(const Mesh& mesh, const Topology& topology) {
  std::vector<uint8_t> found;
  for (const SubAxis& sub_axis : mesh.sub_axes()) {
    size_t level = 0;
    while (level + 1 < topology.levels.size() && !stays_within(mesh, sub_axis, topology.levels[level])) ++level;
    found.push_back(static_cast<uint8_t>(level));
  }
  return found;
}

constexpr size_t kMeshes = 1024;

// What was found out before; never destroyed.
struct Known {
  std::mutex mutex;
  std::vector<Topology> topologies;
  std::map<std::pair<MeshRef, size_t>, std::vector<uint8_t>> levels;
};
Known& known() {
  static Known* known = new Known();
  return *known;
}

}  // namespace

int64_t Topology::cost_ns(Collective kind, int64_t bytes, int64_t group, size_t level) const {
  if (traits_of(kind).crossings == 0 || bytes <= 0) return 0;
  const Level& links = levels.at(std::min(level, levels.size() - 1));
  // 128 bits: bytes · picoseconds leaves 64 bits at some petabytes.
  const auto transfer = static_cast<int64_t>(static_cast<Wide>(bytes) * links.picoseconds_per_byte / 1000);
  return links.latency_ns + links.message_ns * messages(kind, group) + transfer;
}

std::vector<std::string_view> topology_names() {
  std::vector<std::string_view> names;
  for (const NamedTopology& topology : named()) names.push_back(topology.name);
  return names;
}

Topology topology_named(std::string_view name) {
  std::string expected;
  for (const NamedTopology& topology : named()) {
    if (topology.name == name) return topology.topology;
    expected += (expected.empty() ? "'" : ", '") + std::string(topology.name) + "'";
  }
  throw ShardingError("no topology is called '" + std::string(name) + "'. Expected one of " + expected +
                      ". Write one of these names, or load a file.");
}

size_t topology_id(const Topology& topology) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  for (size_t i = 0; i < all.topologies.size(); ++i)
    if (all.topologies[i] == topology) return i;
  all.topologies.push_back(topology);
  return all.topologies.size() - 1;
}

std::vector<uint8_t> sub_axis_levels(const MeshRef& mesh, const Topology& topology) {
  const size_t id = topology_id(topology);
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  const std::pair key{mesh, id};
  if (const auto found = all.levels.find(key); found != all.levels.end()) return found->second;
  if (all.levels.size() >= kMeshes) all.levels.clear();
  return all.levels[key] = find_levels(*mesh, topology);
}

size_t level_of(const std::vector<uint8_t>& sub_axis_levels, SubAxisSet sub_axes) {
  size_t level = 0;
  for (size_t i = 0; i < sub_axis_levels.size(); ++i)
    if (sub_axes >> i & 1) level = std::max<size_t>(level, sub_axis_levels[i]);
  return level;
}

}  // namespace spmdx
