// SPDX-License-Identifier: Apache-2.0
// Processes: which process of the program owns which device, and which shards it therefore holds.
#pragma once
#include <map>
#include <tuple>
#include <vector>

#include "sharding/sharding.h"

namespace spmdx {

// Every process owns the same number of devices, with ids that follow each other. By default one process owns all
// devices.
struct Processes {
  int64_t count = 1, here = 0;
  int64_t devices = 0;  // of each process, where there are several processes

  int64_t owner(int64_t device) const { return count == 1 ? 0 : device / devices; }
};

// The positions of the mesh that are devices of `process`, ascending.
std::vector<int64_t> positions_of(const Processes& processes, int64_t process, const Mesh& mesh);

// The distinct shards (by index, ascending) of a value that uses these sub-axes, there, which `process` holds.
std::vector<int64_t> held_by(const Processes& processes, int64_t process, const Mesh& mesh, SubAxisSet used,
                             const Place& place = {});

// Whether every process, also one without a device of the mesh, holds all of such a value.
bool held_everywhere(const Processes& processes, const Mesh& mesh, SubAxisSet used, const Place& place = {});

// Which shards this process holds, by mesh, sub-axes and place; each is computed once. Values keep their shards in this
// order.
class Holdings {
 public:
  explicit Holdings(const Processes& processes) : processes_(processes) {}
  // By distinct index, ascending.
  const std::vector<int64_t>& of(const MeshRef& mesh, SubAxisSet used, const Place& place = {});
  const std::vector<int64_t>& of(const Sharding& sharding) {
    return of(sharding.mesh, sharding.used(), sharding.place);
  }
  // Where in that list the shard of the device at `position` is. REQUIRES: it is there.
  uint32_t index_at(const Sharding& sharding, int64_t position);

 private:
  Processes processes_;
  std::map<std::tuple<MeshRef, SubAxisSet, Place>, std::vector<int64_t>> held_;
};

}  // namespace spmdx
