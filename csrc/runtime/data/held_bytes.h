// SPDX-License-Identifier: Apache-2.0
// HeldBytes: how much memory of a device the values of the program take, and took at most.
#pragma once
#include <cstdint>

namespace spmdx {

// Counts bytes as held from `set` on, until it dies or is set again.
class HeldBytes {
 public:
  HeldBytes() = default;
  ~HeldBytes() { set(0); }
  HeldBytes(const HeldBytes&) = delete;
  void set(int64_t bytes);
  int64_t get() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

// Of all values together. Any thread, all: atomic.
int64_t held_bytes();
// The most since the last reset, steps with what they hold while they run.
int64_t held_peak();
void reset_held_peak();
// A step runs: `inputs` of the bytes that are held are its inputs, and `peak` is what it holds at most with them.
void note_run(int64_t inputs, int64_t peak);

}  // namespace spmdx
