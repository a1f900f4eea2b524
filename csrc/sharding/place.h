// SPDX-License-Identifier: Apache-2.0
// Place: the part of a mesh where a value exists and an op runs: all of it, or a stage of a stage axis; and whether a
// value lies in the memory of its devices or of their hosts.
#pragma once
#include <string>

#include "base/cursor.h"
#include "sharding/mesh.h"

namespace spmdx {

struct Place {
  int axis = -1;      // of the mesh, along which stages lie; -1: the whole mesh
  int64_t stage = 0;  // on the devices whose coordinate is this modulo the size of the axis
  bool host = false;  // in the memory of the host of each device; ops run on devices
  bool operator==(const Place&) const = default;
  auto operator<=>(const Place&) const = default;
  bool whole() const { return axis < 0; }
  bool plain() const { return whole() && !host; }  // on all devices, in their own memory
  Place on_device() const { return {axis, stage}; }
  Place on_host() const { return {axis, stage, true}; }
};

constexpr int64_t kMostStages = 4096;

inline uint64_t hash(const Place& place) {
  return hash_combine(static_cast<uint64_t>(place.axis + 1) * 2 + place.host, static_cast<uint64_t>(place.stage));
}

// Whether the device at `position` is there.
bool lies_at(const Mesh& mesh, const Place& place, int64_t position);
// Whether both are the same devices.
bool same_devices(const Mesh& mesh, const Place& a, const Place& b);
// The position there that differs from `position` along the stage axis only.
int64_t moved_to(const Mesh& mesh, const Place& place, int64_t position);
// How many devices are there.
int64_t size_of(const Mesh& mesh, const Place& place);

std::string str(const Mesh& mesh, const Place& place);  // "pipe=1", "host", "pipe=1 host"; "" for a plain place
// Parses what str prints; a stage may be beyond the size of the axis. Throws ShardingError.
Place parse_place(Cursor& cursor, const Mesh& mesh);

}  // namespace spmdx
