// SPDX-License-Identifier: Apache-2.0
// Program: a graph prepared for running, as a flat list of instructions over numbered slots.
#pragma once
#include <memory>
#include <vector>

#include "graph/graph.h"
#include "runtime/collective/route.h"
#include "runtime/data/backend.h"

namespace spmdx {

// A slot holds one distinct shard of one value.
struct Operand {
  uint32_t slot = 0;
  bool last = false;  // nobody reads the slot afterwards: take the buffer out of it
};

enum class InstructionKind : uint8_t {
  kernel,      // run kernels[index]
  fill,        // results are constants: fills[index + result]
  collective,  // a collective on one operand: collectives[index]
  segment      // run kernels[index], made of the kernels of many ops; its parameters are all of the plan
};

// One op on one distinct shard, or one collective on all shards of a value.
struct Instruction {
  InstructionKind kind = InstructionKind::kernel;
  int donated = -1;  // operand whose buffer has the type of the only result and dies here; of a collective 0: all die
  NodeId node = 0;
  uint32_t index = 0;
  uint32_t first_operand = 0, num_operands = 0;
  uint32_t first_result = 0, num_results = 0;
  uint32_t first_param = 0, num_params = 0;
  SubAxisSet sub_axes = 0;  // of an op: those that cut its operands or results,
  uint32_t shard = 0;       // and which of the distinct shards of these it is
};

// What a device holds where the op has nothing to compute: an empty shard, or the identity of a reduction.
struct Fill {
  DType dtype = DType::unknown;  // unknown: no buffer
  Shape shape;
  Reduction reduction = Reduction::none;
};

// One value on its way from one layout to another.
struct CollectiveCall {
  DType dtype = DType::unknown;
  Reduction reduction = Reduction::none;
  uint32_t route = 0;
};

struct Program {
  std::vector<Instruction> instructions;  // in the order of the nodes
  std::vector<Operand> operands;
  std::vector<uint32_t> results;  // slot to store in, kNone: nobody reads it
  std::vector<Fill> fills;
  std::vector<CollectiveCall> collectives;
  std::vector<Route> routes;
  std::vector<std::shared_ptr<Kernel>> kernels;
  std::vector<CallRef> calls;        // by kernel: what it was prepared from; null for segments
  std::vector<uint32_t> first_slot;  // by value; the shards held here have consecutive slots
  std::vector<uint32_t> num_slots;   // by value
  uint32_t total_slots = 0;
  uint32_t most_operands = 0, most_results = 0;
};

// Localises every node, once per distinct shard that this process holds. Nodes keep their order; equal local calls
// share a kernel.
Program prepare(const Graph& graph, Backend& backend, const Processes& processes);

// Marks last uses and drops results that nobody reads (liveness.cpp).
void mark_last_uses(Program& program, const Graph& graph);

}  // namespace spmdx
