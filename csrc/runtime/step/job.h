// SPDX-License-Identifier: Apache-2.0
// Job: a step with its plan and data, and what processes compare of it before it runs.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "runtime/step/plan.h"

namespace spmdx {

struct Job {
  int64_t number = 0;  // counted from 0, the same in every process
  PlanRef plan;
  std::vector<DataRef> inputs;
  std::vector<Param> params;
  std::vector<DataRef> outputs;
  int64_t settings = 0;  // of the thread that submitted it
};

// Numbers of steps [begin, end) whose comparison does not count, because not every process is known to have made it.
class Uncompared {
 public:
  void add(int64_t begin, int64_t end) { ranges_.emplace_back(begin, end); }
  bool has(int64_t step) const;

 private:
  std::vector<std::pair<int64_t, int64_t>> ranges_;
};

// Inputs whose memory the run may take: an output replaces them, and only this job and its outputs' fallbacks hold
// them.
std::vector<bool> spare_inputs(const Job& job);
// What a device holds of them.
int64_t bytes_of_inputs(const Job& job);
// The user's line by which messages name a step.
SourceId first_source(const Graph& graph);
// Whether a step changes numbers that the program held before it. Such steps are the same in all processes.
bool changes_values(const Job& job);
// What the host feeds to a step must be the same everywhere: numbers, and tensors that came from the program. Each of
// these is compared in one step, and again if not every process has made that comparison.
uint64_t fingerprint_of(const Job& job, Backend& backend, const Uncompared& uncompared);
// The program and what is fed to it, for the others to compare with theirs.
std::string account_of(const Job& job, Backend& backend, const SourcePrinter& source);
// Fills the outputs, or fails them: waits for them return.
void deliver(const Job& job, RunResult result);

}  // namespace spmdx
