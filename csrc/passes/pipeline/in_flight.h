// SPDX-License-Identifier: Apache-2.0
// How many microbatches' activations each stage keeps under a schedule.
#pragma once
#include <vector>

#include "passes/pipeline/schedule.h"

namespace spmdx {

// By stage: of how many microbatches it holds activations at most, from the forward to the end of the backward pass.
// REQUIRES: check_schedule accepts it.
std::vector<int64_t> in_flight_of_stages(const Schedule& schedule);

}  // namespace spmdx
