// SPDX-License-Identifier: Apache-2.0
// Constants of steps that are only planned: values computed from what the program says, which can be read.
#pragma once
#include "bridge/recorder/recorder_state.h"

namespace spmdx::bridge {

// Bytes of the largest value that is computed for who reads constants: 256 MiB, a batch of 4096 rows of 8192 tokens.
constexpr int64_t kMostConstantBytes = 256 << 20;

// All: Holds the recorder's lock. Gives up the GIL.

// From here on data of live roots are no constants: they were computed before.
void begin_constants();
// Nothing is known any more.
void end_constants();

// Data with the elements that the tensor shows: its own from before, or those of a constant, computed now; nothing else
// runs. Throws ShardingError, led by the user's line, where there are none or a constant is too large.
DataRef elements_shown(LazyTensor& tensor);
// Data with the elements of abstract data, or with those that are assumed of others; null where nothing is known.
DataRef known_elements(const DataRef& data);
// From now on this is what the tensor shows: a constant. REQUIRES: a CPU tensor of its shape and dtype.
void assume(LazyTensor& tensor, const at::Tensor& elements);
// Of what was recorded is noted which results are constants, before the roots, in the order of their results, hold
// them.
void note_constants(const RecorderState& state, const std::vector<RootRef>& roots, const std::vector<DataRef>& results);

}  // namespace spmdx::bridge
