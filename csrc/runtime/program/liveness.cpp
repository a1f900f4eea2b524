// SPDX-License-Identifier: Apache-2.0
// Liveness: where a slot is read for the last time, and which buffer a result may take over.
#include <algorithm>

#include "runtime/program/program.h"

namespace spmdx {
namespace {

// The shards are of the step, and nobody reads them afterwards.
bool all_made_and_last(const Program& program, const Instruction& instruction, const Graph& graph) {
  for (const ValueId input : graph.nodes[instruction.node].inputs)
    if (graph.values[input].producer == kNone) return false;
  for (uint32_t i = 0; i < instruction.num_operands; ++i)
    if (!program.operands[instruction.first_operand + i].last) return false;
  return instruction.num_operands > 0;
}

// The first operand that dies here and has the type of the only result.
int donation_candidate(const Program& program, const Instruction& instruction, const Graph& graph) {
  const Node& node = graph.nodes[instruction.node];
  if (instruction.kind == InstructionKind::collective) return all_made_and_last(program, instruction, graph) ? 0 : -1;
  if (instruction.kind != InstructionKind::kernel || node.call->outputs.size() != 1) return -1;
  const Value& result = graph.values[node.output];
  for (uint32_t i = 0; i < instruction.num_operands; ++i) {
    const Value& operand = graph.values[node.inputs[i]];
    if (program.operands[instruction.first_operand + i].last && operand.type.dtype == result.type.dtype &&
        operand.type.shape == result.type.shape && operand.sharding == result.sharding)
      return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

void mark_last_uses(Program& program, const Graph& graph) {
  std::vector<bool> read_later(program.total_slots, false);
  for (const Output& output : graph.outputs)
    for (uint32_t s = 0; s < program.num_slots[output.value]; ++s)
      read_later[program.first_slot[output.value] + s] = true;
  for (auto instruction = program.instructions.rbegin(); instruction != program.instructions.rend(); ++instruction) {
    for (uint32_t r = 0; r < instruction->num_results; ++r) {
      uint32_t& slot = program.results[instruction->first_result + r];
      if (slot != kNone && !read_later[slot]) slot = kNone;
    }
    for (uint32_t i = instruction->num_operands; i-- > 0;) {
      Operand& operand = program.operands[instruction->first_operand + i];
      operand.last = !read_later[operand.slot];
      read_later[operand.slot] = true;
    }
    instruction->donated = donation_candidate(program, *instruction, graph);
  }
}

}  // namespace spmdx
