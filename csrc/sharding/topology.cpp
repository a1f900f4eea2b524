// SPDX-License-Identifier: Apache-2.0
// The time that collectives take over the links of a topology, and which links a mesh needs.
#include "sharding/topology.h"

#include <algorithm>
#include <bit>
#include <iterator>
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
  static const Hardware gpu{.name = "gpu",
                            .memory_bytes_per_second = 1e12,
                            .flops_per_second = {{DType::f32, 100e12}},
                            .host_bytes_per_second = 16e9};
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

int64_t transfer_ns(const Level& links, int64_t bytes, int64_t lanes = 1) {
  // 128 bits: bytes · picoseconds leaves 64 bits at some petabytes.
  const auto ns = static_cast<int64_t>(static_cast<Wide>(bytes) * links.picoseconds_per_byte / (1000 * lanes));
  if (links.efficiency.empty()) return ns;
  const double share = share_at(links.efficiency, static_cast<double>(bytes / lanes));
  return static_cast<int64_t>(std::min(static_cast<double>(ns) / share, 1e18));
}

constexpr std::string_view kAlgorithms[] = {"doubling", "ring"};
constexpr int64_t kTreePercent = 92;  // of the bandwidth of rings that trees reach, as NCCL's tuning has it

// As NCCL goes: bytes enter and leave a block by the links of all of its devices, so each carries its share of them,
// and a message goes from device to device, or for small sums up a tree and down again.
int64_t round_rings_ns(const Topology& topology, Collective kind, int64_t bytes, const Group& group) {
  const int64_t crossings = traits_of(kind).crossings;
  int64_t ring = 0, tree = 0, transfer = 0, latency = 0, inside = 1;
  for (size_t level = 0; level < group.sizes.size(); ++level) {
    const int64_t size = group.sizes[level];
    if (size == 1) continue;
    const Level& links = topology.levels.at(std::min(level, topology.levels.size() - 1));
    const int64_t blocks = group.size() / (inside * size);  // of this level
    ring += crossings * links.message_ns * (level == group.level() ? size - 1 : blocks * (size - 1));
    tree += crossings * links.message_ns * std::bit_width(static_cast<uint64_t>(size - 1));
    transfer = std::max(transfer, transfer_ns(links, bytes, inside));
    latency = links.latency_ns;
    inside *= size;
  }
  const int64_t round = latency + ring + transfer;
  if (kind != Collective::all_reduce) return round;
  const int64_t whole = transfer * inside / std::max<int64_t>(1, inside - 1);  // a tree has no share that stays
  return std::min(round, latency + tree + whole * 100 / kTreePercent);
}

const Level& slowest_of(const Topology& topology, const Group& group) {
  return topology.levels.at(std::min(group.level(), topology.levels.size() - 1));
}

int64_t by_messages_ns(const Topology& topology, Collective kind, int64_t bytes, const Group& group) {
  const Level& slowest = slowest_of(topology, group);
  if (slowest.algorithm == Algorithm::ring && traits_of(kind).rounds == Rounds::tree)
    return round_rings_ns(topology, kind, bytes, group);
  return slowest.latency_ns + slowest.message_ns * messages(kind, group.size()) + transfer_ns(slowest, bytes);
}

// None for a reduce_scatter: it is no half of an all_reduce, by messages less than by a backend's ring.
const std::vector<Efficiency>& native_shares(const Topology& topology, Collective kind, const Group& group) {
  static const std::vector<Efficiency> kNone;
  const Level& slowest = slowest_of(topology, group);
  if (kind == Collective::all_reduce) return slowest.native_sums;
  return kind == Collective::all_gather ? slowest.native_gathers : kNone;
}

// Of so many, of which `direct_ns` is the time of all their messages together.
int64_t natively_ns(const Topology& topology, int64_t direct_ns, int64_t count, Collective kind, int64_t bytes,
                    const Group& group) {
  const std::vector<Efficiency>& shares = native_shares(topology, kind, group);
  if (shares.empty()) return direct_ns;
  const int64_t of_each = std::max<int64_t>(1, bytes / count);
  const int64_t alone = count == 1 ? direct_ns : by_messages_ns(topology, kind, of_each, group);
  const double ns =
      static_cast<double>(count) * static_cast<double>(alone) * share_at(shares, static_cast<double>(of_each));
  return static_cast<int64_t>(std::min(ns, 1e18));
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

std::string_view name(Algorithm algorithm) { return kAlgorithms[static_cast<size_t>(algorithm)]; }

Algorithm algorithm_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kAlgorithms); ++i)
    if (kAlgorithms[i] == name) return static_cast<Algorithm>(i);
  throw ShardingError("no algorithm is called '" + std::string(name) +
                      "'. Expected 'doubling' or 'ring'. Write 'ring' for links that NCCL uses.");
}

int64_t Group::size() const {
  int64_t product = 1;
  for (int64_t size : sizes) product *= size;
  return product;
}

size_t Group::level() const {
  for (size_t level = sizes.size(); level-- > 0;)
    if (sizes[level] > 1) return level;
  return 0;
}

int64_t Topology::cost_ns(Collective kind, int64_t bytes, const Group& group) const {
  return cost_ns(way_of(1, kind, bytes, group), 1, kind, bytes, group);
}

int64_t Topology::cost_ns(Way way, int64_t count, Collective kind, int64_t bytes, const Group& group) const {
  if (traits_of(kind).crossings == 0 || bytes <= 0) return 0;
  const int64_t direct = by_messages_ns(*this, kind, bytes, group);
  return way == Way::native ? natively_ns(*this, direct, count, kind, bytes, group) : direct;
}

Way Topology::way_of(int64_t count, Collective kind, int64_t bytes, const Group& group) const {
  const CollectiveRow& traits = traits_of(kind);
  if (!traits.native || bytes <= 0 || (traits.reduces && !natives.sums)) return Way::direct;
  if (natives.way) return *natives.way;
  if (native_shares(*this, kind, group).empty()) return natives.unmeasured;
  const auto ns = [&](Way way) { return cost_ns(way, count, kind, bytes, group); };
  return ns(Way::native) < ns(Way::direct) ? Way::native : Way::direct;
}

double Topology::least_share() const {
  double least = 1;
  if (natives.way == Way::direct) return least;
  for (const Level& level : levels)
    for (const auto* points : {&level.native_gathers, &level.native_sums})
      for (const Efficiency& point : *points) least = std::min(least, point.share);
  return least;
}

int64_t Level::busy_ns(int64_t collective_ns) const {
  return static_cast<int64_t>(processor_usage * static_cast<double>(collective_ns));
}

int64_t Topology::shared_ns(int64_t busy_ns, int64_t end_ns, int64_t devices) const {
  if (processors == 0) return end_ns;
  const double share = std::min(1.0, static_cast<double>(processors) / static_cast<double>(devices));
  return std::max(busy_ns, static_cast<int64_t>(share * static_cast<double>(end_ns)));
}

void check(const Topology& topology) {
  if (topology.levels.size() > Group::kMostLevels)
    throw ShardingError("the topology has " + std::to_string(topology.levels.size()) + " levels. Expected at most " +
                        std::to_string(Group::kMostLevels) + ". Join those that are about as fast.");
  for (size_t level = 0; level < topology.levels.size(); ++level) {
    check_points("the efficiency of level " + std::to_string(level), topology.levels[level].efficiency);
    check_factors("native_gathers of level " + std::to_string(level), topology.levels[level].native_gathers);
    check_factors("native_sums of level " + std::to_string(level), topology.levels[level].native_sums);
    const double usage = topology.levels[level].processor_usage;
    if (!(usage >= 0 && usage <= 1))  // nor is it nan
      throw ShardingError("processor_usage of level " + std::to_string(level) + " is " + std::to_string(usage) +
                          ". Expected from 0 to 1. Write 0 for links that carry by themselves.");
  }
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

Group group_of(const Mesh& mesh, const std::vector<uint8_t>& sub_axis_levels, SubAxisSet sub_axes) {
  Group group;
  for (size_t i = 0; i < sub_axis_levels.size(); ++i)
    if (sub_axes >> i & 1)
      group.sizes[std::min<size_t>(sub_axis_levels[i], Group::kMostLevels - 1)] *= mesh.sub_axes()[i].size;
  return group;
}

}  // namespace spmdx
