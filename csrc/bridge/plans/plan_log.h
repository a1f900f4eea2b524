// SPDX-License-Identifier: Apache-2.0
// Plan log: what was planned, for whoever logs it in Python.
#pragma once
#include <cstdint>
#include <functional>

namespace spmdx::bridge {

struct PlanNote {
  int64_t ops = 0;  // as recorded
  int64_t devices = 1;
  int64_t collectives = 0, wire_bytes = 0, peak_bytes = 0;
  int64_t took_ns = 0;
};

// The function gets a note of every plan that the program asks for from now on. Called with the GIL. Once.
void log_plans(std::function<void(const PlanNote&)> listener);
// Hands over the notes that there are. Program threads, with none of the engine's locks. Takes the GIL if there are
// any.
void hand_over_plan_notes();

}  // namespace spmdx::bridge
