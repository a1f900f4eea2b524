// SPDX-License-Identifier: Apache-2.0
// Schedules in the CSV form of torch.distributed.pipelining: a row a rank, "4F0" for the forward of stage 4.
#pragma once
#include <string>
#include <string_view>

#include "passes/pipeline/schedule.h"

namespace spmdx {

// As its format "compute_only".
std::string csv(const Schedule& schedule);
// Reads "compute_only" and "compute_comms": empty cells and communication are left out, since plans place their own.
// Throws ShardingError, with line and cell, for other text, and for a stage that is not a chunk of its row's rank.
Schedule parse_csv(std::string_view text);

}  // namespace spmdx
