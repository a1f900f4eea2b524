// SPDX-License-Identifier: Apache-2.0
// What a collective costs: α + bytes / bandwidth of the links it crosses, in integer nanoseconds so that every rank
// agrees.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "sharding/collectives.h"
#include "sharding/hardware.h"
#include "sharding/mesh.h"

namespace spmdx {

// The links that join the devices of one block.
struct Level {
  int64_t devices = 0;                 // of a block, which holds ids k·devices …; 0: what the mesh calls inner
  int64_t latency_ns = 5'000;          // to start a collective
  int64_t message_ns = 50;             // for every message a device waits for in turn
  int64_t picoseconds_per_byte = 500;  // 1 / bandwidth of a device: 2 GB/s
  bool operator==(const Level&) const = default;
};

struct Topology {
  std::vector<Level> levels = {Level{}};  // the innermost and fastest first; the last one joins everything
  Hardware hardware = {};                 // what every device is

  // Time of a collective of `group` devices by which one of them receives `bytes`. Moves without wire bytes cost 0.
  // For send_recv, `group` is the device and all it receives from.
  int64_t cost_ns(Collective kind, int64_t bytes, int64_t group = 2, size_t level = 0) const;
  bool operator==(const Topology&) const = default;
};

// The named ones: "in-process", "gloo", "nvlink", "infiniband" (nvlink inside blocks of 8).
std::vector<std::string_view> topology_names();
// Throws ShardingError for a name that is none of them.
Topology topology_named(std::string_view name);

// The level each sub-axis of the mesh needs: the innermost one within whose blocks it stays. A group of devices needs
// the largest level of its sub-axes.
std::vector<uint8_t> sub_axis_levels(const MeshRef& mesh, const Topology& topology);
size_t level_of(const std::vector<uint8_t>& sub_axis_levels, SubAxisSet sub_axes);
// A number for each different topology, in order of appearance.
size_t topology_id(const Topology& topology);

}  // namespace spmdx
