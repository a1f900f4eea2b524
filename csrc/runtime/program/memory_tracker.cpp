// SPDX-License-Identifier: Apache-2.0
// MemoryTracker: reference counts of blocks of memory, one table a device.
#include "runtime/program/memory_tracker.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace spmdx {

MemoryTracker::MemoryTracker(const Graph& graph, const Program& program, const Processes& processes, Backend& backend)
    : backend_(backend), holders_(program.total_slots) {
  Holdings holdings(processes);
  const std::vector<int64_t> positions =
      graph.mesh ? positions_of(processes, processes.here, *graph.mesh) : std::vector<int64_t>{0};
  devices_.resize(positions.size());
  for (ValueId value = 0; value < graph.values.size(); ++value) {
    const ShardingRef sharding = graph.values[value].sharding;
    const SubAxisSet used = sharding ? sharding->used() : 0;
    for (uint32_t device = 0; device < devices_.size(); ++device) {
      if (sharding && (sharding->place.host || !lies_at(*sharding->mesh, sharding->place, positions[device]))) continue;
      const uint32_t shard = used ? holdings.index_at(*sharding, positions[device]) : 0;
      holders_[program.first_slot[value] + shard].push_back(device);
    }
  }
}

void MemoryTracker::store(uint32_t slot, const BufferRef& buffer, bool received) {
  if (!buffer) return;
  const Memory memory = backend_.memory(buffer);
  for (const uint32_t holder : holders_[slot]) {
    Device& device = devices_[holder];
    Block& block = device.blocks[memory.id];
    if (block.slots++ > 0) continue;
    block.bytes = received ? backend_.bytes(buffer) : memory.bytes;
    device.bytes += block.bytes;
    if (device.bytes > device.peak.bytes) note_peak(device);
  }
}

void MemoryTracker::note_peak(Device& device) {
  constexpr size_t kLargest = 3;
  std::vector<int64_t> sizes;
  for (const auto& [id, block] : device.blocks) sizes.push_back(block.bytes);
  const size_t kept = std::min(kLargest, sizes.size());
  std::partial_sort(sizes.begin(), sizes.begin() + static_cast<long>(kept), sizes.end(), std::greater<>());
  sizes.resize(kept);
  device.peak = {device.bytes, std::move(sizes)};
}

void MemoryTracker::drop(uint32_t slot, const BufferRef& buffer) {
  if (!buffer) return;
  const void* id = backend_.memory(buffer).id;
  for (const uint32_t holder : holders_[slot]) {
    Device& device = devices_[holder];
    const auto block = device.blocks.find(id);
    if (--block->second.slots > 0) continue;
    device.bytes -= block->second.bytes;
    device.blocks.erase(block);
  }
}

std::vector<MeasuredPeak> MemoryTracker::peaks() const {
  std::vector<MeasuredPeak> peaks;
  for (const Device& device : devices_) peaks.push_back(device.peak);
  return peaks;
}

}  // namespace spmdx
