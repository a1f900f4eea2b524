// SPDX-License-Identifier: Apache-2.0
// Fuse: one graph from the instructions of a unit, and one instruction from its kernel.
#include "runtime/segments/fuse.h"

#include <algorithm>
#include <unordered_map>

#include "graph/text.h"

namespace spmdx {
namespace {

// How often slots are read, where an output of the plan is one more.
std::vector<uint32_t> reads_of(const Graph& graph, const Program& program) {
  std::vector<uint32_t> reads(program.total_slots, 0);
  for (const Operand& operand : program.operands) ++reads[operand.slot];
  for (const Output& output : graph.outputs)
    for (uint32_t s = 0; s < program.num_slots[output.value]; ++s) ++reads[program.first_slot[output.value] + s];
  return reads;
}

// By slot: that of an input of the plan whose memory it may have; kNone: there is none.
std::vector<uint32_t> donors_of(const Graph& graph, const Program& program) {
  std::vector<uint32_t> donors(program.total_slots, kNone);
  for (const Output& output : graph.outputs) {
    if (!output.donates) continue;
    const ValueId tied = graph.inputs[output.tied].value;
    if (program.num_slots[output.value] != program.num_slots[tied]) continue;
    for (uint32_t s = 0; s < program.num_slots[tied]; ++s)
      donors[program.first_slot[output.value] + s] = program.first_slot[tied] + s;
  }
  return donors;
}

// What is known of all slots of a program.
struct Slots {
  std::vector<uint32_t> reads, donors;
};

class Builder {
 public:
  Builder(const Graph& graph, const Program& program, const Slots& slots, const Compiler& compiler,
          const Numbers& numbers)
      : graph_(graph), program_(program), slots_(slots), compiler_(compiler), numbers_(numbers) {}

  void add(uint32_t index) {
    const Instruction& instruction = program_.instructions[index];
    CallRef call = program_.calls[instruction.index];
    if (instruction.num_params && !compiler_.takes_numbers(*call))
      call = with_constants(*call, std::span(numbers_.values).subspan(instruction.first_param));
    std::vector<ValueId> operands;
    for (uint32_t i = 0; i < instruction.num_operands; ++i)
      operands.push_back(value_in(program_.operands[instruction.first_operand + i].slot, call->inputs[i]));
    const ValueId first = segment_.graph.add_node(call, std::move(operands), graph_.nodes[instruction.node].source,
                                                  segment_.graph.num_params);
    segment_.instructions.push_back(index);
    segment_.calls.push_back(program_.calls[instruction.index]);
    for (uint32_t p = 0; p < call->num_params; ++p) segment_.params.push_back(instruction.first_param + p);
    for (uint32_t r = 0; r < instruction.num_results; ++r)
      if (const uint32_t slot = program_.results[instruction.first_result + r]; slot != kNone) {
        values_[slot] = first + r;
        made_.push_back(slot);
      }
  }

  Segment finish() {
    for (const uint32_t slot : made_) {
      if (dies_here(slot)) continue;
      segment_.outputs.push_back(slot);
      const uint32_t over = compiler_.in_place() ? input_under(slot) : kNone;
      segment_.graph.outputs.push_back({values_[slot], nullptr, over, over != kNone, 0});
    }
    segment_.text = print(segment_.graph);
    return std::move(segment_);
  }

 private:
  bool dies_here(uint32_t slot) { return slots_.reads[slot] == read_here_[slot]; }

  // That has the type of what replaces it in the plan, and is read here alone; kNone: there is none.
  uint32_t input_under(uint32_t slot) {
    const auto found = std::ranges::find(segment_.inputs, slots_.donors[slot]);
    if (found == segment_.inputs.end() || !dies_here(*found)) return kNone;
    const auto index = static_cast<uint32_t>(found - segment_.inputs.begin());
    const Graph& graph = segment_.graph;
    const TensorType &of = graph.values[values_[slot]].type, &under = graph.values[graph.inputs[index].value].type;
    return of == under && !of.wrapped_number ? index : kNone;
  }

  ValueId value_in(uint32_t slot, const TensorType& type) {
    ++read_here_[slot];
    const auto [at, fresh] = values_.try_emplace(slot, 0);
    if (fresh) {
      at->second = segment_.graph.add_input(type);
      segment_.inputs.push_back(slot);
    }
    return at->second;
  }

  const Graph& graph_;
  const Program& program_;
  const Slots& slots_;
  const Compiler& compiler_;
  const Numbers& numbers_;
  Segment segment_;
  std::unordered_map<uint32_t, ValueId> values_;  // by slot
  std::unordered_map<uint32_t, uint32_t> read_here_;
  std::vector<uint32_t> made_;  // slots
};

// Of a unit that has a kernel: one instruction, which reads all parameters of the plan.
Instruction instruction_of(Program& program, const Segment& segment, std::shared_ptr<Kernel> kernel, uint32_t params) {
  Instruction instruction;
  instruction.kind = InstructionKind::segment;
  instruction.node = segment.first;
  instruction.index = static_cast<uint32_t>(program.kernels.size());
  instruction.num_params = params;
  program.kernels.push_back(std::move(kernel));
  program.calls.push_back(nullptr);
  instruction.first_operand = static_cast<uint32_t>(program.operands.size());
  instruction.num_operands = static_cast<uint32_t>(segment.inputs.size());
  for (const uint32_t slot : segment.inputs) program.operands.push_back({slot, false});
  instruction.first_result = static_cast<uint32_t>(program.results.size());
  instruction.num_results = static_cast<uint32_t>(segment.outputs.size());
  program.results.insert(program.results.end(), segment.outputs.begin(), segment.outputs.end());
  program.most_operands = std::max(program.most_operands, instruction.num_operands);
  program.most_results = std::max(program.most_results, instruction.num_results);
  return instruction;
}

}  // namespace

CallRef with_constants(const Call& call, std::span<const Param> values) {
  Call made = call;
  for (Arg& arg : made.args) {
    if (const auto* real = std::get_if<RealParam>(&arg)) {
      const double value = values[real->index].real;
      arg = value;
    } else if (const auto* integer = std::get_if<IntParam>(&arg)) {
      const int64_t value = values[integer->index].integer + integer->plus;
      arg = value;
    }
  }
  made.num_params = 0;
  return seal(std::move(made));
}

std::vector<Segment> segments_of(const Graph& graph, const Program& program, const std::vector<Unit>& units,
                                 const Compilers& compilers, const Numbers& numbers) {
  const Slots slots{reads_of(graph, program), donors_of(graph, program)};
  std::vector<Segment> segments(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    if (!units[u].is_segment) continue;
    const Instruction& first = program.instructions[units[u].instructions[0]];
    const int64_t device = device_of(graph, first);
    const std::shared_ptr<Compiler>& compiler = compilers.of(device);
    Builder builder(graph, program, slots, *compiler, numbers);
    for (const uint32_t index : units[u].instructions) builder.add(index);
    segments[u] = builder.finish();
    segments[u].first = first.node;
    segments[u].device = device;
    segments[u].compiler = compiler;
  }
  return segments;
}

Program fused(const Graph& graph, const Program& program, const std::vector<Unit>& units,
              const std::vector<Segment>& segments, const std::vector<std::shared_ptr<Kernel>>& kernels) {
  Program made = program;
  made.instructions.clear();
  for (size_t u = 0; u < units.size(); ++u) {
    if (kernels[u]) {
      made.instructions.push_back(instruction_of(made, segments[u], kernels[u], graph.num_params));
      continue;
    }
    for (const uint32_t index : units[u].instructions) made.instructions.push_back(program.instructions[index]);
  }
  mark_last_uses(made, graph);
  return made;
}

}  // namespace spmdx
