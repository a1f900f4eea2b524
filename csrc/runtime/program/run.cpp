// SPDX-License-Identifier: Apache-2.0
// Run: the loop only moves buffers between slots, kernels and collectives.
#include "runtime/program/run.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/waiting.h"
#include "runtime/data/check.h"
#include "runtime/data/observer.h"

namespace spmdx {
namespace {

constexpr const char* kWaits =
    "a kernel uses a tensor of device spmdx or waits for steps, and is part of one. Expected one that works with the "
    "tensors that it is given.";

}  // namespace

Run::Run(const Graph& graph, const Program& program, Backend& backend, CollectiveQueue& collective_queue, int64_t step)
    : graph_(graph),
      program_(program),
      backend_(backend),
      queue_(collective_queue),
      step_(step),
      slots_(program.total_slots),
      operands_(program.most_operands),
      results_(program.most_results) {
  const CheckModes modes = check_modes();
  poison_ = modes.poison;
  if (modes.memory) tracker_.emplace(graph, program, collective_queue.comm().processes(), backend);
}

Run::~Run() {
  for (Pending& pending : pending_)
    if (pending.running) pending.running->join();
}

Progress Run::progress() const {
  const Node& node = graph_.nodes[node_];
  return {step_, node.source, node.call->op};
}

void Run::load(const std::vector<DataRef>& inputs, const std::vector<bool>& spare) {
  internal_check(
      inputs.size() == graph_.inputs.size(),
      "a run got " + std::to_string(inputs.size()) + " inputs, its plan has " + std::to_string(graph_.inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId value = graph_.inputs[i].value;
    const Shards& shards = inputs[i]->wait();
    const bool unused_here = !inputs[i]->sharding() && program_.num_slots[value] == 0;
    if (unused_here) continue;  // it is whole, and its mesh has no device here
    internal_check(shards.size() == program_.num_slots[value],
                   "input " + std::to_string(i) + " has " + std::to_string(shards.size()) +
                       " shards, its plan expects " + std::to_string(program_.num_slots[value]));
    const uint32_t first = program_.first_slot[value];
    std::copy(shards.begin(), shards.end(), slots_.begin() + first);
    const bool is_spare = i < spare.size() && spare[i];
    if (is_spare) {
      spare_.resize(program_.total_slots, nullptr);
      std::fill_n(spare_.begin() + first, shards.size(), inputs[i].get());
    }
    for (uint32_t s = 0; tracker_ && s < shards.size(); ++s)
      for (int holder = is_spare; holder < 2; ++holder)  // the slot, and the caller if it keeps the buffer
        tracker_->store(first + s, shards[s], false);
  }
}

void Run::execute(const std::vector<Param>& params) {
  const Instruction* const end = program_.instructions.data() + program_.instructions.size();
  NodeRanges ranges(graph_);
  for (const Instruction* instruction = program_.instructions.data(); instruction != end; ++instruction) {
    node_ = instruction->node;
    if (instruction->kind == InstructionKind::collective && route_of(*instruction).crosses) {
      ranges.end();
      instruction = start_collectives(instruction, end);
    } else {
      ranges.at(node_);
      run_instruction(*instruction, params);
    }
  }
  ranges.end();
  for (Pending& pending : pending_) finish_collective(pending);
}

void Run::run_instruction(const Instruction& instruction, const std::vector<Param>& params) {
  switch (instruction.kind) {
    case InstructionKind::kernel:
    case InstructionKind::segment:
      return run_kernel(instruction, params);
    case InstructionKind::fill:
      return run_fill(instruction);
    case InstructionKind::collective:
      return run_collective(instruction);
  }
}

// ---- slots ---------------------------------------------------------------------------------------------

void Run::give_up(uint32_t slot) {
  // The first slot of the value is the last entry that is not beyond the slot.
  const auto after = std::upper_bound(program_.first_slot.begin(), program_.first_slot.end(), slot);
  spare_[slot]->give_up(slot - *std::prev(after));
  gave_up_ = true;
}

void Run::await(const Operand& operand) {
  if (awaited_.empty() || !awaited_[operand.slot]) return;
  const NodeId reader = node_;
  finish_collective(pending_[awaited_[operand.slot] - 1]);
  node_ = reader;
}

BufferRef Run::take(const Operand& operand) {
  BufferRef& slot = slots_[operand.slot];
  internal_check(slot != nullptr, "an op reads a shard that is not there: never made, or used up");
  if (!operand.last) return slot;
  BufferRef taken = std::move(slot);
  if (!spare_.empty() && spare_[operand.slot]) give_up(operand.slot);
  return taken;
}

// What a collective brings is awaited first: if that fails, nothing was taken.
void Run::take_operands(const Instruction& instruction) {
  for (uint32_t i = 0; i < instruction.num_operands; ++i) await(program_.operands[instruction.first_operand + i]);
  for (uint32_t i = 0; i < instruction.num_operands; ++i)
    operands_[i] = take(program_.operands[instruction.first_operand + i]);
}

// The debug modes, when an instruction is done and still holds its operands.
void Run::check_instruction(const Instruction& instruction) {
  if (poison_)
    for (uint32_t r = 0; r < instruction.num_results; ++r)
      if (results_[r]) results_[r] = backend_.fence(results_[r]);
  if (tracker_) {
    for (uint32_t r = 0; r < instruction.num_results; ++r)
      if (const uint32_t slot = program_.results[instruction.first_result + r]; slot != kNone)
        tracker_->store(slot, results_[r], instruction.kind == InstructionKind::collective);
    for (uint32_t i = 0; i < instruction.num_operands; ++i)
      if (const Operand& operand = program_.operands[instruction.first_operand + i]; operand.last)
        tracker_->drop(operand.slot, operands_[i]);
  }
  if (poison_)
    for (uint32_t i = 0; i < instruction.num_operands; ++i)
      if (operands_[i].use_count() == 1) backend_.poison(operands_[i]);
}

void Run::store_results(const Instruction& instruction) {
  if (checking()) check_instruction(instruction);
  for (uint32_t r = 0; r < instruction.num_results; ++r) {
    const uint32_t slot = program_.results[instruction.first_result + r];
    if (slot != kNone) slots_[slot] = std::move(results_[r]);
    results_[r].reset();
  }
  for (uint32_t i = 0; i < instruction.num_operands; ++i) operands_[i].reset();
}

void Run::store_shards(const Instruction& instruction, Shards shards) {
  internal_check(shards.size() == instruction.num_results,
                 "a collective returned another number of shards than planned");
  std::move(shards.begin(), shards.end(), results_.begin());
  store_results(instruction);
}

// ---- ops -----------------------------------------------------------------------------------------------

void Run::run_kernel(const Instruction& instruction, const std::vector<Param>& params) {
  take_operands(instruction);
  const bool sole_owner = instruction.donated >= 0 && operands_[instruction.donated].use_count() == 1;
  const NoWaiting within_a_step(kWaits);
  program_.kernels[instruction.index]->run(
      {operands_.data(), instruction.num_operands}, {params.data() + instruction.first_param, instruction.num_params},
      {results_.data(), instruction.num_results}, sole_owner ? instruction.donated : -1);
  store_results(instruction);
}

void Run::run_fill(const Instruction& instruction) {
  for (uint32_t r = 0; r < instruction.num_results; ++r) {
    const Fill& fill = program_.fills[instruction.index + r];
    if (fill.dtype == DType::unknown) continue;
    results_[r] = numel(fill.shape) == 0 ? backend_.empty(fill.dtype, fill.shape)
                                         : backend_.identity(fill.dtype, fill.shape, fill.reduction);
  }
  store_results(instruction);
}

// ---- collectives ---------------------------------------------------------------------------------------

// Takes the operands; in the debug modes they stay, until the instruction is checked.
Transfer Run::transfer(const Instruction& instruction) {
  take_operands(instruction);
  const auto first = operands_.begin(), last = first + instruction.num_operands;
  Shards shards =
      checking() ? Shards(first, last) : Shards(std::make_move_iterator(first), std::make_move_iterator(last));
  const CollectiveCall& exchange = program_.collectives[instruction.index];
  return Transfer(backend_, route_of(instruction), exchange.dtype, exchange.reduction, std::move(shards),
                  instruction.donated >= 0 && !checking());
}

void Run::run_collective(const Instruction& instruction) { store_shards(instruction, transfer(instruction).finish()); }

const Instruction* Run::start_collectives(const Instruction* first, const Instruction* end) {
  std::vector<Transfer> transfers;
  const Instruction* instruction = first;
  for (; instruction != end && instruction->kind == InstructionKind::collective && instruction->node == first->node;
       ++instruction) {
    if (instruction != first && checking()) break;
    transfers.push_back(transfer(*instruction));
  }
  const auto count = static_cast<size_t>(instruction - first);
  const bool here = are_exchanged_here({first, count}, end);
  auto running = std::make_shared<RunningCollective>(backend_, std::move(transfers), progress(), graph_, node_);
  if (!here) queue_.start(running);
  pending_.push_back({first, count, std::move(running)});
  awaited_.resize(program_.total_slots, 0);
  for (const Instruction* one = first; one != instruction; ++one)
    for (uint32_t r = 0; r < one->num_results; ++r)
      if (const uint32_t slot = program_.results[one->first_result + r]; slot != kNone)
        awaited_[slot] = static_cast<uint32_t>(pending_.size());
  let_go_of_what_was_sent();
  if (first->num_results == 0) sending_.push_back(pending_.size() - 1);
  if (checking() || here) finish_collective(pending_.back(), here);
  return instruction - 1;
}

bool Run::are_exchanged_here(std::span<const Instruction> collectives, const Instruction* end) {
  const Instruction* const next = collectives.data() + collectives.size();
  return next != end && reads_one_of(*next, collectives) && !queue_.comm().is_on_stream() && queue_.is_idle();
}

bool Run::reads_one_of(const Instruction& reader, std::span<const Instruction> made) const {
  const auto reads = [&](uint32_t slot) {
    const std::span operands(program_.operands.data() + reader.first_operand, reader.num_operands);
    return std::ranges::any_of(operands, [&](const Operand& operand) { return operand.slot == slot; });
  };
  return std::ranges::any_of(made, [&](const Instruction& one) {
    const std::span results(program_.results.data() + one.first_result, one.num_results);
    return std::ranges::any_of(results, reads);
  });
}

void Run::let_go_of_what_was_sent() {
  std::erase_if(sending_, [&](size_t index) {
    Pending& pending = pending_[index];
    const bool over = !pending.running || pending.running->is_over();
    if (over) finish_collective(pending);
    return over;
  });
}

void Run::finish_collective(Pending& pending, bool exchanged_here) {
  if (!pending.running) return;
  node_ = pending.first->node;
  const WaitRange range(graph_, node_);
  const RunningCollectiveRef running = std::move(pending.running);
  if (exchanged_here) running->run_here(queue_.comm());
  std::vector<Shards> shards = running->wait();
  for (size_t i = 0; i < pending.count; ++i) {
    const Instruction& instruction = pending.first[i];
    for (uint32_t r = 0; r < instruction.num_results; ++r)
      if (const uint32_t slot = program_.results[instruction.first_result + r]; slot != kNone) awaited_[slot] = 0;
    store_shards(instruction, std::move(shards[i]));
  }
}

// ---- outputs -------------------------------------------------------------------------------------------

std::vector<Shards> Run::take_outputs() {
  std::vector<Shards> outputs;
  for (const Output& output : graph_.outputs) {
    Shards& shards = outputs.emplace_back();
    const uint32_t first = program_.first_slot[output.value], count = program_.num_slots[output.value];
    const bool compact_already = count > 1 && backend_.fill_small_memory({slots_.data() + first, count});
    for (uint32_t index = first; index < first + count; ++index) {
      BufferRef& slot = slots_[index];
      if (slot) {
        BufferRef compact = compact_already ? slot : backend_.compact(slot);
        if (poison_) compact = backend_.fence(compact);
        if (tracker_ && compact != slot) {
          tracker_->store(index, compact, false);
          tracker_->drop(index, slot);
        }
        slot = std::move(compact);
      }
      shards.push_back(slot);
    }
  }
  return outputs;
}

std::vector<Shards> Run::complete_outputs() const {
  std::vector<Shards> outputs;
  for (const Output& output : graph_.outputs) {
    const auto first = slots_.begin() + program_.first_slot[output.value];
    Shards shards(first, first + program_.num_slots[output.value]);
    if (std::count(shards.begin(), shards.end(), nullptr)) shards.clear();
    outputs.push_back(std::move(shards));
  }
  return outputs;
}

}  // namespace spmdx
