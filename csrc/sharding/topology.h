// SPDX-License-Identifier: Apache-2.0
// What a collective costs: α + bytes / bandwidth of the links it crosses, by the algorithm of its library, in integer
// nanoseconds so that every rank agrees.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "sharding/collectives.h"
#include "sharding/hardware.h"
#include "sharding/mesh.h"
#include "sharding/natives.h"

namespace spmdx {

// How the collectives of a library go over links.
enum class Algorithm : uint8_t {
  doubling,  // between devices 1, 2, 4 … apart: few messages, and every byte over the slowest links of the group
  ring,      // round rings that leave a block by all of its devices in turn; small sums go up and down a tree
};
std::string_view name(Algorithm algorithm);  // "doubling"
// Throws ShardingError for a name that is none.
Algorithm algorithm_named(std::string_view name);

// The links that join the devices of one block.
struct Level {
  int64_t devices = 0;                 // of a block, which holds ids k·devices …; 0: what the mesh calls inner
  int64_t latency_ns = 5'000;          // to start a collective
  int64_t message_ns = 50;             // for every message a device waits for in turn
  int64_t picoseconds_per_byte = 500;  // 1 / bandwidth of a device: 2 GB/s
  Algorithm algorithm = Algorithm::doubling;
  std::vector<Efficiency> efficiency = {};  // share of the bandwidth, by bytes that a device receives
  // Of the time of a collective: as long its devices do not compute, though they need not wait for it. 0: links carry
  // by themselves; 1: the cores that compute move the bytes, one after the other.
  double processor_usage = 0;
  // How long the all-gathers and all-reduces of the backend take between processes, as multiples of the time of
  // messages, by bytes that a device receives; none: nobody knows.
  std::vector<Efficiency> native_gathers = {}, native_sums = {};
  int64_t busy_ns(int64_t collective_ns) const;
  bool operator==(const Level&) const = default;
};

// The devices of a collective: so many in a block of the first level, so many of these blocks in one of the next, …
struct Group {
  static constexpr size_t kMostLevels = 8;
  std::array<int64_t, kMostLevels> sizes;  // those that are not used are 1
  Group() { sizes.fill(1); }
  // All of them joined by links of one level.
  explicit Group(int64_t size, size_t level = 0) : Group() { sizes[level] = size; }
  int64_t size() const;
  size_t level() const;  // the slowest that joins two of them
};

struct Topology {
  std::vector<Level> levels = {Level{}};  // the innermost and fastest first; the last one joins everything
  Hardware hardware = {};                 // what every device is
  int64_t processors = 0;                 // that devices share to compute; 0: each has its own
  int64_t record_ns = 0;                  // of such a one, for an op of the program that another device runs
  NativePolicy natives = {};              // no part of what users call a topology

  // How long so many devices take, each of which works for `busy_ns` in the mean, and of which the last would end at
  // `end_ns` if each had a processor as fast as its share of them while all devices work. Who waits leaves its share
  // to the others.
  int64_t shared_ns(int64_t busy_ns, int64_t end_ns, int64_t devices) const;

  // Time of a collective by which a device of the group receives `bytes`. Moves without wire bytes cost 0. For
  // send_recv, the group is the device and all it receives from.
  int64_t cost_ns(Collective kind, int64_t bytes, const Group& group = Group(2)) const;
  // The same of `count` collectives of as many bytes together, which go one way: natives one after the other, messages
  // of all of them at once.
  int64_t cost_ns(Way way, int64_t count, Collective kind, int64_t bytes, const Group& group) const;
  // Which way they go, where their parts are equal.
  Way way_of(int64_t count, Collective kind, int64_t bytes, const Group& group) const;
  // The least multiple of the time of messages that a collective may take.
  double least_share() const;
  bool operator==(const Topology&) const = default;
};

// Throws ShardingError where there are more levels than a group can have, or where more bytes would take less time.
void check(const Topology& topology);
// The named ones: "in-process", "gloo", "nvlink", "infiniband" (nvlink inside blocks of 8).
std::vector<std::string_view> topology_names();
// Throws ShardingError for a name that is none of them.
Topology topology_named(std::string_view name);

// The level each sub-axis of the mesh needs: the innermost one within whose blocks it stays. A group of devices needs
// the largest level of its sub-axes.
std::vector<uint8_t> sub_axis_levels(const MeshRef& mesh, const Topology& topology);
size_t level_of(const std::vector<uint8_t>& sub_axis_levels, SubAxisSet sub_axes);
// The devices that differ along these sub-axes.
Group group_of(const Mesh& mesh, const std::vector<uint8_t>& sub_axis_levels, SubAxisSet sub_axes);
// A number for each different topology, in order of appearance.
size_t topology_id(const Topology& topology);

}  // namespace spmdx
