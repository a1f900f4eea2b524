// SPDX-License-Identifier: Apache-2.0
// Estimate: what a design takes of an FPGA, and how many cycles it takes. The model:
// - A loop takes trips × interval + depth cycles; a stage's loops follow each other.
// - Stages run at once: every so many cycles as the slowest of them takes, a new run may begin (the interval).
// - The latency is found by following the elements of streams, which come evenly between a first and a last one: a loop
//   starts with the first one of each stream that it reads, and ends no sooner than a step and its depth after the
//   last.
// - Operators of all loops of all stages are there at once, by the table of cost.h; arrays and streams are memory.
#pragma once
#include "emit/hls/cost.h"

namespace spmdx::emit::hls {

struct StageEstimate {
  std::string name;
  int64_t cycles = 0;  // that it is busy
  int64_t end = 0;     // when it ends
  Resources resources;
};

struct HlsEstimate {
  std::vector<StageEstimate> stages;
  int64_t latency = 0, interval = 0;  // cycles
  Resources resources;                // of all stages, of streams and ports
};

HlsEstimate estimate(const Design& design, const Uses& uses);
std::string report(const HlsEstimate& estimate, const Design& design);

}  // namespace spmdx::emit::hls
