// SPDX-License-Identifier: Apache-2.0
// Plan: a graph as it was recorded, compiled and ready to run, with what reports need of it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/starts.h"
#include "passes/settings/options.h"
#include "runtime/step/executor.h"
#include "runtime/step/repeats.h"

namespace spmdx {

struct PlacedStep;  // passes/places/stages_by_time.h
struct Precedent;   // passes/precedent/precedent.h

// An op without a rule: what a device receives so that it sees its operands whole.
struct Fallback {
  std::string op;
  int64_t bytes = 0;
  SourceId source = 0;
};

// What a plan is for: a step that runs; what users want to know of a step that does not; what they did not ask for.
enum class PlanFor : uint8_t { step, question, itself };

// A compiled plan and what reports need of it.
struct Plan {
  Graph traced;  // as recorded: what a later graph is compared with
  StartsOfPlan starts;
  std::unique_ptr<Executable> executable;
  int64_t collectives = 0, wire_bytes = 0;
  std::vector<Fallback> fallbacks;
  int64_t idle_stages = 0;                     // of a pipeline with one microbatch, which wait for the one that works
  bool brief = false;                          // it takes about as long as to hand it to another thread
  std::shared_ptr<const PlacedStep> placed;    // of a graph with kinds
  std::shared_ptr<const Precedent> precedent;  // what was decided, for programs of other sizes
  bool follows = false;                        // it was decided as a program of other sizes was
  bool provisional = false;                    // and sizes of its own may ask for another plan
  mutable int64_t times_found = 0;             // in a cache, by further steps; guarded by Engine::planning
  std::optional<Repeat> repeat;                // set where too many plans are made for one program
  uint64_t fingerprint = 0;                    // where there are several processes: equal where the plans are
};
using PlanRef = std::shared_ptr<const Plan>;

// Compiles a copy of the graph. `compared`: processes compare their plans, so there is a fingerprint. `like`: what was
// decided for a program of other sizes; null: there is none.
std::shared_ptr<Plan> make_plan(const Graph& graph, const CompileOptions& options, Backend& backend,
                                CollectiveQueue& collective_queue, bool compared, const Precedent* like = nullptr);

bool moves_bytes(const Node& node);  // a collective that is more than a view of what is here

// Tells `outputs`, data of a planned step, the shardings that they will have.
void set_shardings(const Plan& plan, const std::vector<DataRef>& outputs);

}  // namespace spmdx
