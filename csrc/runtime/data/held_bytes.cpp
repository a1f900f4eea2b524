// SPDX-License-Identifier: Apache-2.0
// HeldBytes: two numbers for the process.
#include "runtime/data/held_bytes.h"

#include <atomic>

namespace spmdx {
namespace {

std::atomic<int64_t> held{0}, peak{0};

void raise_peak(int64_t bytes) {
  int64_t before = peak.load(std::memory_order_relaxed);
  while (before < bytes && !peak.compare_exchange_weak(before, bytes, std::memory_order_relaxed)) {
  }
}

}  // namespace

void HeldBytes::set(int64_t bytes) {
  const int64_t more = bytes - bytes_;
  if (more == 0) return;
  bytes_ = bytes;
  const int64_t all = held.fetch_add(more, std::memory_order_relaxed) + more;
  if (more > 0) raise_peak(all);
}

int64_t held_bytes() { return held.load(std::memory_order_relaxed); }

int64_t held_peak() { return peak.load(std::memory_order_relaxed); }

void reset_held_peak() { peak.store(held_bytes(), std::memory_order_relaxed); }

void note_run(int64_t inputs, int64_t peak_of_run) { raise_peak(held_bytes() - inputs + peak_of_run); }

}  // namespace spmdx
