// SPDX-License-Identifier: Apache-2.0
// Tasks that read each other, devices of several kinds, and who runs what when.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.h"

namespace spmdx {

constexpr auto kNever = std::numeric_limits<int64_t>::max();  // the time of a task on a device that cannot run it
constexpr auto kNoDevice = std::numeric_limits<uint32_t>::max();

// What a task makes is sent to another device once, however many read it there.
struct TaskRead {
  uint32_t task;
  int64_t bytes;
};

struct Task {
  std::vector<int64_t> ns;            // by device
  std::vector<TaskRead> reads;        // of earlier tasks
  int64_t bytes = 0;                  // that it keeps in the memory of its device
  std::vector<uint32_t> shared = {};  // values that have to lie there as well, each once; without twins
};

// A transfer takes latency_ns + bytes · picoseconds_per_byte / 1000, rounded down.
struct Link {
  int64_t latency_ns = 0, picoseconds_per_byte = 0;
};

struct Devices {
  std::vector<int64_t> memory;           // bytes, by device
  std::vector<std::vector<Link>> links;  // by sender and receiver; that to itself is not looked at
  std::vector<int64_t> shared = {};      // bytes of values that tasks share
};

struct TaskAssignment {
  std::vector<uint32_t> device;     // by task
  std::vector<int64_t> start, end;  // by task, ns
  std::vector<uint32_t> order;      // of starts: tasks behind all that they read
  int64_t ns = 0;                   // the makespan: when the last task ends
};

// Memory that cannot hold the tasks: in the assignment that comes nearest this device is the fullest, and short of so
// many bytes.
struct TaskMemoryError : ShardingError {
  TaskMemoryError(uint32_t device, int64_t bytes_short);
  uint32_t device;
  int64_t bytes_short;
};

}  // namespace spmdx
