// SPDX-License-Identifier: Apache-2.0
// Regroup: what processes tell each other before they go on after a failure, and what follows.
#pragma once
#include <string>
#include <vector>

#include "bridge/tensor/generator.h"
#include "runtime/step/engine.h"

namespace spmdx::bridge {

// How far a process has come.
struct Reached {
  Standing steps;
  bool overwrote = false;  // a step that failed here had begun to overwrite what it was given
  Draw drawn;              // the state of the device's generator
};
std::string text_of(const Reached& reached);
Reached reached_from(const std::string& text);

// Where all processes go on. Step numbers are larger than any that a process has used before; random numbers continue
// from the process that has come furthest.
struct Resumed {
  int64_t agreed = 0, next = 0;  // as Engine::resume has them
  Draw drawn;
};
Resumed resumed(const std::vector<Reached>& all);

// Why tensors may differ between the processes, although what failed was undone: one sentence, or empty.
std::string why_tensors_may_differ(const std::vector<Reached>& all);

}  // namespace spmdx::bridge
