// SPDX-License-Identifier: Apache-2.0
// MemoryTracker: counts the bytes that every device of the mesh holds while a program runs.
#pragma once
#include <unordered_map>
#include <vector>

#include "runtime/program/program.h"

namespace spmdx {

// The most that a device held in a run, and the largest pieces of memory then, in bytes.
struct MeasuredPeak {
  int64_t bytes = 0;
  std::vector<int64_t> largest;
};

// Counts as if every device had memory of its own: a shard that several devices hold counts for each of them. Buffers
// that share memory on one device count once, and keep all of it alive. What a collective brings from another device
// counts as its own size, although here it may be a view of the other device's shard.
class MemoryTracker {
 public:
  MemoryTracker(const Graph& graph, const Program& program, const Processes& processes, Backend& backend);
  // The slot now holds `buffer`; null is nothing. `received`: by a collective.
  void store(uint32_t slot, const BufferRef& buffer, bool received);
  void drop(uint32_t slot, const BufferRef& buffer);
  std::vector<MeasuredPeak> peaks() const;  // by device of the mesh

 private:
  struct Block {
    int64_t bytes = 0;
    int64_t slots = 0;  // slots of this device that hold it
  };
  struct Device {
    std::unordered_map<const void*, Block> blocks;
    int64_t bytes = 0;
    MeasuredPeak peak;
  };
  static void note_peak(Device& device);
  Backend& backend_;
  std::vector<Device> devices_;
  std::vector<std::vector<uint32_t>> holders_;  // devices by slot
};

}  // namespace spmdx
