// SPDX-License-Identifier: Apache-2.0
// Fuse: graphs of segments, and the program that runs kernels of them.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "runtime/segments/units.h"

namespace spmdx {

// By unit; without nodes where it is none.
std::vector<Segment> segments_of(const Graph& graph, const Program& program, const std::vector<Unit>& units,
                                 const Compilers& compilers, const Numbers& numbers);

// The call with its numbers, which are its own, as constants.
CallRef with_constants(const Call& call, std::span<const Param> values);

// The program in the order of its units, with a kernel for each segment that has one. Kernels are by unit; null: its
// instructions stay.
Program fused(const Graph& graph, const Program& program, const std::vector<Unit>& units,
              const std::vector<Segment>& segments, const std::vector<std::shared_ptr<Kernel>>& kernels);

}  // namespace spmdx
