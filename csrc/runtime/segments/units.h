// SPDX-License-Identifier: Apache-2.0
// Units: a program in the order in which segments are large.
#pragma once
#include <vector>

#include "runtime/program/program.h"
#include "runtime/segments/compiler.h"

namespace spmdx {

// Instructions that follow each other once the program is in the order of its units.
struct Unit {
  std::vector<uint32_t> instructions;  // of the program, each behind those that it reads
  bool is_segment = false;             // all of them the compiler takes, and they are more than one or a large one
};

// All instructions of a program, so that segments are large. What a unit reads is made in units before it. No
// instruction passes a collective, nor is it far from where it was.
std::vector<Unit> units_of(const Graph& graph, const Program& program, const Compilers& compilers,
                           const Numbers& numbers);

// The number of the device that an instruction is of, the first one of those that have the same shard.
int64_t device_of(const Graph& graph, const Instruction& instruction);

}  // namespace spmdx
