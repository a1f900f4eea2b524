// SPDX-License-Identifier: Apache-2.0
// The schedules that have a name.
#pragma once
#include <string_view>

#include "passes/pipeline/schedule.h"

namespace spmdx {

// Whether it names a schedule, and is not the text of one.
inline bool is_name(std::string_view said) { return said.find_first_of(" \n") == said.npos; }

// `kind` is one of these, for any numbers of ranks and microbatches:
//   "gpipe"          all forwards, then all backwards (Huang et al., GPipe, 2019)
//   "1f1b"           a backward as soon as there can be one (Narayanan et al., PipeDream-2BW, 2021)
//   "interleaved:v"  1F1B over v chunks a rank, in Megatron's order (Narayanan et al., Megatron-LM, 2021)
//   "zb-h1"          1F1B with weight gradients put off into the bubble, at 1F1B's peak of memory (Qi et al., Zero
//                    Bubble Pipeline Parallelism, 2024)
// Throws ShardingError for another kind, and for numbers that are not from 1 to some millions of forwards.
Schedule make_schedule(std::string_view kind, int64_t ranks, int64_t microbatches);

}  // namespace spmdx
