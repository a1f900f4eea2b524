// SPDX-License-Identifier: Apache-2.0
// Segment: ops of one shard that no collective comes between, as a graph of their local calls without a mesh.
#pragma once
#include <string>
#include <vector>

#include "runtime/program/program.h"

namespace spmdx {

class Compiler;

// What a compiler is given, and where it is in a program.
struct Segment {
  Graph graph;
  std::string text;               // of the graph, without sources: equal segments have the same kernel
  std::vector<uint32_t> instructions;     // of the program: what the nodes of the graph are without a compiler
  std::vector<uint32_t> inputs, outputs;  // slots of the program, as the graph has them
  std::vector<uint32_t> params;           // of the plan, as the graph numbers them
  NodeId first = 0;                       // node of the plan's graph
};

// Numbers of a plan as they are now, and which of them were others in an earlier run. Those that were not are constants
// for compilers that want them to be.
struct Numbers {
  std::vector<Param> values;
  std::vector<bool> change;  // by number
};

// Instructions that follow each other once the program is in the order of its units.
struct Unit {
  std::vector<uint32_t> instructions;  // of the program, each behind those that it reads
  bool is_segment = false;             // more than one, all of which the compiler takes
};

// All instructions of a program, so that segments are large. What a unit reads is made in units before it. No
// instruction passes a collective, nor is it far from where it was.
std::vector<Unit> units_of(const Graph& graph, const Program& program, const Compiler& compiler,
                           const Numbers& numbers);

// By unit; without nodes where it is none.
std::vector<Segment> segments_of(const Graph& graph, const Program& program, const std::vector<Unit>& units,
                                 const Compiler& compiler, const Numbers& numbers);

// The program in the order of its units, with a kernel for each segment that has one. Kernels are by unit; null: its
// instructions stay.
Program fused(const Graph& graph, const Program& program, const std::vector<Unit>& units,
              const std::vector<Segment>& segments, const std::vector<std::shared_ptr<Kernel>>& kernels);

}  // namespace spmdx
