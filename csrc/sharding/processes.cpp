// SPDX-License-Identifier: Apache-2.0
// Processes: positions and shards of each.
#include "sharding/processes.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "sharding/sharding.h"
#include "sharding/shards.h"

namespace spmdx {

std::vector<int64_t> positions_of(const Processes& processes, int64_t process, const Mesh& mesh) {
  std::vector<int64_t> positions;
  for (int64_t position = 0; position < mesh.size(); ++position)
    if (processes.owner(mesh.device_ids()[position]) == process) positions.push_back(position);
  return positions;
}

std::vector<int64_t> held_by(const Processes& processes, int64_t process, const Mesh& mesh, SubAxisSet used,
                             const Place& place) {
  const int64_t count = num_distinct(mesh, used);
  if (processes.count == 1) {
    std::vector<int64_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::vector<bool> seen(count, false);
  for (const int64_t position : positions_of(processes, process, mesh))
    if (lies_at(mesh, place, position)) seen[distinct_index(mesh, used, position)] = true;
  std::vector<int64_t> held;
  for (int64_t index = 0; index < count; ++index)
    if (seen[index]) held.push_back(index);
  return held;
}

bool held_everywhere(const Processes& processes, const Mesh& mesh, SubAxisSet used, const Place& place) {
  const int64_t count = num_distinct(mesh, used);
  for (int64_t process = 0; process < processes.count; ++process)
    if (static_cast<int64_t>(held_by(processes, process, mesh, used, place).size()) != count) return false;
  return true;
}

const std::vector<int64_t>& Holdings::of(const MeshRef& mesh, SubAxisSet used, const Place& place) {
  const auto [at, fresh] = held_.try_emplace({mesh, used, place});
  if (fresh) at->second = held_by(processes_, processes_.here, *mesh, used, place);
  return at->second;
}

uint32_t Holdings::index_at(const Sharding& sharding, int64_t position) {
  const int64_t index = distinct_index(*sharding.mesh, sharding.used(), position);
  if (processes_.count == 1) return static_cast<uint32_t>(index);
  const auto& held = of(sharding);
  const auto at = std::lower_bound(held.begin(), held.end(), index);
  internal_check(at != held.end() && *at == index, "a shard of a device of another process");
  return static_cast<uint32_t>(at - held.begin());
}

}  // namespace spmdx
