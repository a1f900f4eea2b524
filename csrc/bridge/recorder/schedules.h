// SPDX-License-Identifier: Apache-2.0
// Schedules: in which order the stages of a mesh work on microbatches, as users said.
#pragma once
#include <string>

#include "sharding/mesh.h"

namespace spmdx::bridge {

// From the next step on. Empty: nothing is said. Holds the recorder's lock, both.
void set_schedule(const MeshRef& mesh, std::string schedule);
std::string schedule_of(const MeshRef& mesh);

}  // namespace spmdx::bridge
