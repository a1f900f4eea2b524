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
  Graph graph;                            // outputs that donate an input replace it, and may be written over it
  std::string text;                       // of the graph, without sources: equal segments have the same kernel
  std::vector<uint32_t> instructions;     // of the program: what the nodes of the graph are without a compiler
  std::vector<CallRef> calls;             // of the program, by node; the graph may have constants for their numbers
  std::vector<uint32_t> inputs, outputs;  // slots of the program, as the graph has them
  std::vector<uint32_t> params;           // of the plan, as the graph numbers them
  NodeId first = 0;                       // node of the plan's graph
  int64_t device = 0;                     // that it is of
  std::shared_ptr<Compiler> compiler;     // of that device
};

// Numbers of a plan as they are now, and which of them were others in an earlier run. Those that were not are constants
// for compilers that want them to be.
struct Numbers {
  std::vector<Param> values;
  std::vector<bool> change;  // by number
};

}  // namespace spmdx
