// SPDX-License-Identifier: Apache-2.0
// Check: debug modes of a run. All are off unless asked for, and then cost one test of a flag per op.
#pragma once

namespace spmdx {

struct CheckModes {
  // Memory that no shard owns holds garbage (NaN, the largest integers): what collectives assemble into, the
  // surroundings of every buffer, and buffers after their last use. A read of it shows in the numbers.
  bool poison = false;
  // The bytes every device holds are counted, and their maxima over a run are kept (Executable::measured_peaks).
  bool memory = false;
  // Values that the program reads are compared between processes.
  bool replicas = false;
  bool operator==(const CheckModes&) const = default;
};

// Of the process; read when a run starts. Thread-safe.
CheckModes check_modes();
void set_check_modes(CheckModes modes);

}  // namespace spmdx
