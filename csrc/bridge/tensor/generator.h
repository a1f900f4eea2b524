// SPDX-License-Identifier: Apache-2.0
// Random generators of the device: a seed and a count of draws, which every random op records.
#pragma once
#include <ATen/core/Generator.h>

#include <optional>

namespace spmdx::bridge {

struct Draw {
  uint64_t seed = 0, draw = 0;
};
// All: Any thread. Takes the generator's lock.

// Takes one draw from `generator`, or from the device's own. Throws for a generator of another device.
Draw next_draw(const std::optional<at::Generator>& generator);
const at::Generator& default_generator();  // the device's own
at::Generator new_generator();
// The state of the device's own generator: its next draw.
Draw current_draw();
void set_current_draw(const Draw& draw);
void manual_seed(uint64_t seed);  // of the device's own generator

}  // namespace spmdx::bridge
