// SPDX-License-Identifier: Apache-2.0
// Executor: walks the works of a program; the loop only moves buffers between slots and kernels.
#include "runtime/executor.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "runtime/check.h"
#include "runtime/meter.h"
#include "runtime/permute_rows.h"
#include "runtime/program.h"

namespace spmdx {

struct Executable::Impl {
  Impl(Graph compiled, Backend& owner, Comm& exchange)
      : graph(std::move(compiled)), backend(owner), comm(exchange), peak(predict_peak_bytes(graph)) {}

  Graph graph;
  Backend& backend;
  Comm& comm;
  int64_t peak = 0;
  std::once_flag prepared;
  Program program;
  std::atomic<int64_t> measured_peak = 0;
};

namespace {

// The buffers of one run.
struct Frame {
  std::vector<BufferRef> slots, operands, results;
  std::vector<Data*> spare;  // by slot: the input that gives it up at its last use; empty if there are none
  bool gave_up = false;
  bool poison = false;
  std::optional<MemoryMeter> meter;
};

void load_inputs(const Graph& graph, const Program& program, const std::vector<DataRef>& inputs,
                 const std::vector<bool>& spare, Frame& frame) {
  internal_check(
      inputs.size() == graph.inputs.size(),
      "a run got " + std::to_string(inputs.size()) + " inputs, its plan has " + std::to_string(graph.inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId value = graph.inputs[i].value;
    const Shards& shards = inputs[i]->wait();
    internal_check(shards.size() == program.num_slots[value],
                   "input " + std::to_string(i) + " has " + std::to_string(shards.size()) +
                       " shards, its plan expects " + std::to_string(program.num_slots[value]));
    const uint32_t first = program.first_slot[value];
    std::copy(shards.begin(), shards.end(), frame.slots.begin() + first);
    const bool is_spare = i < spare.size() && spare[i];
    if (is_spare) {
      frame.spare.resize(program.total_slots, nullptr);
      std::fill_n(frame.spare.begin() + first, shards.size(), inputs[i].get());
    }
    for (uint32_t s = 0; frame.meter && s < shards.size(); ++s)
      for (int holder = is_spare; holder < 2; ++holder)  // the slot, and the caller, if he keeps it for the whole run
        frame.meter->store(first + s, shards[s], false);
  }
}

void give_up(const Program& program, uint32_t slot, Frame& frame) {
  // The first slot of the value is the last entry that is not beyond the slot.
  const auto after = std::upper_bound(program.first_slot.begin(), program.first_slot.end(), slot);
  frame.spare[slot]->give_up(slot - *std::prev(after));
  frame.gave_up = true;
}

void take_operands(const Program& program, const Work& work, Frame& frame) {
  const Operand* operand = program.operands.data() + work.first_operand;
  for (uint32_t i = 0; i < work.num_operands; ++i, ++operand) {
    BufferRef& slot = frame.slots[operand->slot];
    internal_check(slot != nullptr, "an op reads a shard that is not there: never made, or used up");
    if (!operand->last) {
      frame.operands[i] = slot;
      continue;
    }
    frame.operands[i] = std::move(slot);
    if (!frame.spare.empty() && frame.spare[operand->slot]) give_up(program, operand->slot, frame);
  }
}

// The debug modes, when a work is done and still holds its operands.
void check_work(const Program& program, const Work& work, Backend& backend, Frame& frame) {
  if (frame.poison)
    for (uint32_t r = 0; r < work.num_results; ++r)
      if (frame.results[r]) frame.results[r] = backend.fence(frame.results[r]);
  if (frame.meter) {
    for (uint32_t r = 0; r < work.num_results; ++r)
      if (const uint32_t slot = program.results[work.first_result + r]; slot != kNone)
        frame.meter->store(slot, frame.results[r], work.kind == WorkKind::exchange);
    for (uint32_t i = 0; i < work.num_operands; ++i)
      if (const Operand& operand = program.operands[work.first_operand + i]; operand.last)
        frame.meter->drop(operand.slot, frame.operands[i]);
  }
  if (frame.poison)
    for (uint32_t i = 0; i < work.num_operands; ++i)
      if (frame.operands[i].use_count() == 1) backend.poison(frame.operands[i]);
}

void store_results(const Program& program, const Work& work, Backend& backend, Frame& frame) {
  if (frame.poison || frame.meter) check_work(program, work, backend, frame);
  for (uint32_t r = 0; r < work.num_results; ++r) {
    const uint32_t slot = program.results[work.first_result + r];
    if (slot != kNone) frame.slots[slot] = std::move(frame.results[r]);
    frame.results[r].reset();
  }
  for (uint32_t i = 0; i < work.num_operands; ++i) frame.operands[i].reset();
}

void run_kernel(const Program& program, const Work& work, const std::vector<Param>& params, Backend& backend,
                Frame& frame) {
  take_operands(program, work, frame);
  const bool sole_owner = work.donated >= 0 && frame.operands[work.donated].use_count() == 1;
  program.kernels[work.index]->run({frame.operands.data(), work.num_operands},
                                   {params.data() + work.first_param, work.num_params},
                                   {frame.results.data(), work.num_results}, sole_owner ? work.donated : -1);
  store_results(program, work, backend, frame);
}

void run_fill(const Program& program, const Work& work, Backend& backend, Frame& frame) {
  for (uint32_t r = 0; r < work.num_results; ++r) {
    const Fill& fill = program.fills[work.index + r];
    if (fill.dtype == DType::unknown) continue;
    frame.results[r] = numel(fill.shape) == 0 ? backend.empty(fill.dtype, fill.shape)
                                              : backend.identity(fill.dtype, fill.shape, fill.reduction);
  }
  store_results(program, work, backend, frame);
}

void run_exchange(const Program& program, const Work& work, Comm& comm, Backend& backend, Frame& frame) {
  take_operands(program, work, frame);
  const Exchange& exchange = program.exchanges[work.index];
  Shards before(std::make_move_iterator(frame.operands.begin()),
                std::make_move_iterator(frame.operands.begin() + work.num_operands));
  Shards after = exchange.rows.dim < 0
                     ? comm.run(exchange.kind, exchange.type, before, exchange.from, exchange.to)
                     : permute_rows(backend, exchange.type, before, exchange.from, exchange.to, exchange.rows);
  internal_check(after.size() == work.num_results, "a collective returned another number of shards than planned");
  std::move(before.begin(), before.end(), frame.operands.begin());
  std::move(after.begin(), after.end(), frame.results.begin());
  store_results(program, work, backend, frame);
}

// What outlives the run, in memory no larger than needed.
std::vector<Shards> take_outputs(const Graph& graph, const Program& program, Backend& backend, Frame& frame) {
  std::vector<Shards> outputs;
  for (const Output& output : graph.outputs) {
    Shards& shards = outputs.emplace_back();
    for (uint32_t s = 0; s < program.num_slots[output.value]; ++s) {
      const uint32_t index = program.first_slot[output.value] + s;
      BufferRef& slot = frame.slots[index];
      if (slot) {
        BufferRef compact = backend.compact(slot);
        if (frame.poison) compact = backend.fence(compact);
        if (frame.meter && compact != slot) {
          frame.meter->store(index, compact, false);
          frame.meter->drop(index, slot);
        }
        slot = std::move(compact);
      }
      shards.push_back(slot);
    }
  }
  return outputs;
}

// Of a run that failed: those whose shards are all there.
std::vector<Shards> complete_outputs(const Graph& graph, const Program& program, const Frame& frame) {
  std::vector<Shards> outputs;
  for (const Output& output : graph.outputs) {
    const auto first = frame.slots.begin() + program.first_slot[output.value];
    Shards shards(first, first + program.num_slots[output.value]);
    if (std::count(shards.begin(), shards.end(), nullptr)) shards.clear();
    outputs.push_back(std::move(shards));
  }
  return outputs;
}

void run_work(const Program& program, const Work& work, const std::vector<Param>& params, Backend& backend, Comm& comm,
              Frame& frame) {
  switch (work.kind) {
    case WorkKind::kernel:
      return run_kernel(program, work, params, backend, frame);
    case WorkKind::fill:
      return run_fill(program, work, backend, frame);
    case WorkKind::exchange:
      return run_exchange(program, work, comm, backend, frame);
  }
}

}  // namespace

Executable::Executable(Graph graph, Backend& backend, Comm& comm)
    : impl_(std::make_unique<Impl>(std::move(graph), backend, comm)) {}

Executable::~Executable() = default;

void Executable::prepare() {
  std::call_once(impl_->prepared, [this] { impl_->program = spmdx::prepare(impl_->graph, impl_->backend); });
}

const Graph& Executable::graph() const { return impl_->graph; }

int64_t Executable::peak_bytes() const { return impl_->peak; }

int64_t Executable::measured_peak_bytes() const { return impl_->measured_peak; }

RunResult Executable::run(const std::vector<DataRef>& inputs, const std::vector<Param>& params,
                          const ErrorTranslator& translate, const std::vector<bool>& spare) {
  prepare();
  const Graph& graph = impl_->graph;
  const Program& program = impl_->program;
  internal_check(params.size() >= graph.num_params, "a run got fewer parameters than its plan has");
  Frame frame;
  frame.slots.resize(program.total_slots);
  frame.operands.resize(program.most_operands);
  frame.results.resize(program.most_results);
  const CheckModes modes = check_modes();
  frame.poison = modes.poison;
  if (modes.memory) frame.meter.emplace(graph, program, impl_->backend);
  load_inputs(graph, program, inputs, spare, frame);
  const Work* work = program.works.data();
  try {
    for (const Work* end = work + program.works.size(); work != end; ++work)
      run_work(program, *work, params, impl_->backend, impl_->comm, frame);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    return {frame.gave_up ? complete_outputs(graph, program, frame) : std::vector<Shards>{},
            translate ? translate(error, graph.nodes[work->node]) : error};
  }
  RunResult result{take_outputs(graph, program, impl_->backend, frame), nullptr};
  if (frame.meter) impl_->measured_peak = frame.meter->peak_bytes();
  return result;
}

}  // namespace spmdx
