// SPDX-License-Identifier: Apache-2.0
// Executor: runs a compiled graph over numbered slots, every op once per distinct shard.
#pragma once
#include <memory>
#include <vector>

#include "graph/text.h"
#include "passes/memory/peak.h"
#include "runtime/collective/collective_queue.h"
#include "runtime/data/backend.h"
#include "runtime/data/data.h"
#include "runtime/program/memory_tracker.h"
#include "runtime/segments/take_over.h"

namespace spmdx {

// Turns an exception raised by a kernel into one that leads with the user's line and the op. Rethrows; never returns.
using ErrorTranslator = std::function<std::exception_ptr(std::exception_ptr, const Node&)>;

// After an error of a kernel, led by `translate`: no outputs; but if inputs were given up before it, the outputs that
// were complete (the others empty), since there is no way back.
struct RunResult {
  std::vector<Shards> outputs;
  std::exception_ptr error;
};

// Prepared once per plan, at the first run at the latest: localised arguments, kernels, last uses. A run then only
// drops buffers into place. A plan that never runs is never prepared, so it may have any number of devices.
class Executable {
 public:
  // Program threads (Engine::plan makes it).
  Executable(Graph graph, Backend& backend, CollectiveQueue& collective_queue);
  ~Executable();
  // Throws where an op has no kernel. Any thread, without the GIL and with none of the engine's locks. Takes
  // Executable::prepared, once a plan.
  void prepare();
  // Inputs and outputs in the order of Graph::inputs / outputs. Waits for inputs that are still being computed; throws
  // if one of them failed. The memory of `spare` inputs is taken where they are read for the last time. `step` is the
  // number that other processes know the run by. Step thread, or for a trial, which has an Executable of its own, the
  // program thread that asks for it (bind/trials.cpp); without the GIL and with none of the engine's locks. One run at
  // a time.
  RunResult run(const std::vector<DataRef>& inputs, const std::vector<Param>& params, const ErrorTranslator& translate,
                const std::vector<bool>& spare = {}, int64_t step = 0);
  // All: Any thread. But for the last, they take no lock: the graph does not change, and what runs change is atomic.
  const Graph& graph() const;
  PeakBytes peak() const;  // of a device, predicted from the graph
  // What this holds in memory, estimated: the graph, and the program once it is prepared.
  int64_t bytes_held() const;
  // Of the last run with CheckModes::memory, by device of the mesh; empty before there was one. Takes a lock.
  std::vector<MeasuredPeak> measured_peaks() const;
  // What a compiler is given of the program; none before a run. Takes TakeOver::mutex.
  SegmentsOfPlan segments() const;
  // Gives the compiler in force what has run of the plan. Takes TakeOver::mutex.
  void ask_compiler();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spmdx
