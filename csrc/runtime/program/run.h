// SPDX-License-Identifier: Apache-2.0
// Run: one run of a program: the buffers in its slots, and the loop over its instructions.
#pragma once
#include <optional>
#include <vector>

#include "runtime/collective/collective_queue.h"
#include "runtime/data/data.h"
#include "runtime/program/memory_tracker.h"
#include "runtime/program/program.h"

namespace spmdx {

class Run {
 public:
  Run(const Graph& graph, const Program& program, Backend& backend, CollectiveQueue& collective_queue, int64_t step);
  ~Run();  // waits for collectives under way
  // Waits for inputs that are still being computed; throws if one of them failed. The memory of `spare` inputs is taken
  // where they are read for the last time.
  void load(const std::vector<DataRef>& inputs, const std::vector<bool>& spare);
  // Throws what a kernel or a collective throws; `node` is then the one that did.
  void execute(const std::vector<Param>& params);
  NodeId node() const { return node_; }
  Progress progress() const;
  bool gave_up() const { return gave_up_; }
  // What outlives the run, in memory no larger than needed.
  std::vector<Shards> take_outputs();
  // Of a run that failed: those whose shards are all there; the others empty.
  std::vector<Shards> complete_outputs() const;
  std::vector<MeasuredPeak> measured_peaks() const {
    return tracker_ ? tracker_->peaks() : std::vector<MeasuredPeak>{};
  }

 private:
  // A collective under way: instructions that follow each other.
  struct Pending {
    const Instruction* first = nullptr;
    size_t count = 0;
    RunningCollectiveRef running;  // null: it has ended
  };

  void give_up(uint32_t slot);
  void await(const Operand& operand);
  BufferRef take(const Operand& operand);
  void take_operands(const Instruction& instruction);
  void store_results(const Instruction& instruction);
  void check_instruction(const Instruction& instruction);
  void store_shards(const Instruction& instruction, Shards shards);
  void run_instruction(const Instruction& instruction, const std::vector<Param>& params);
  void run_kernel(const Instruction& instruction, const std::vector<Param>& params);
  void run_fill(const Instruction& instruction);
  void run_collective(const Instruction& instruction);
  // Of the instructions of one collective from `first` on; returns the last of them.
  const Instruction* start_collectives(const Instruction* first, const Instruction* end);
  // Whether the next instruction waits for them, and nobody else has something to exchange.
  bool are_exchanged_here(std::span<const Instruction> collectives, const Instruction* end);
  bool reads_one_of(const Instruction& reader, std::span<const Instruction> made) const;
  void finish_collective(Pending& pending, bool exchanged_here = false);
  void let_go_of_what_was_sent();
  const Route& route_of(const Instruction& instruction) const {
    return program_.routes[program_.collectives[instruction.index].route];
  }
  bool checking() const { return poison_ || tracker_; }
  Transfer transfer(const Instruction& instruction);

  const Graph& graph_;
  const Program& program_;
  Backend& backend_;
  CollectiveQueue& queue_;
  const int64_t step_;
  NodeId node_ = 0;
  std::vector<BufferRef> slots_, operands_, results_;
  std::vector<Data*> spare_;       // by slot: the input that gives it up at its last use; empty if there are none
  std::vector<Pending> pending_;   // in the order they were started
  std::vector<size_t> sending_;    // of these, those that bring nothing here
  std::vector<uint32_t> awaited_;  // by slot: 1 + the index of the pending collective that fills it, or 0
  bool gave_up_ = false;
  bool poison_ = false;
  std::optional<MemoryTracker> tracker_;
};

}  // namespace spmdx
