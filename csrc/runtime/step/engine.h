// SPDX-License-Identifier: Apache-2.0
// Engine: finds or compiles the plan of a traced graph, and runs it on a background thread.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "passes/settings/options.h"
#include "runtime/step/plan.h"

namespace spmdx {

struct StepCounters {
  int64_t steps = 0;
  int64_t steps_of_readers = 0;  // those of them that ran on the thread that waits for them
  int64_t plans_compiled = 0;
  int64_t plans_searched = 0;  // those of them whose layouts were searched for, not taken from another plan
  int64_t plan_cache_hits = 0;
  int64_t collectives = 0;                   // executed
  int64_t wire_bytes = 0;                    // per device
  std::map<std::string, int64_t> fallbacks;  // by op
};

// How far this process has come; each field is a number of steps.
struct Standing {
  int64_t submitted = 0;
  int64_t agreed = 0;   // up to the last that every process was found to run alike
  int64_t done = 0;     // up to the last that ran to its end
  int64_t changed = 0;  // up to the last that ran to its end and replaced values
};

// Where a step runs: on the step thread, or at once on the thread that submits it, because that waits for it next. The
// latter holds for a brief step of a program of one process, and only if no step is queued or runs.
enum class RunOn : uint8_t { step_thread, caller_if_brief };

// Whether this process was forked after the first step of its parent. It has no thread that runs steps, so that waiting
// for it would never end: check_process says so. Any thread, both.
bool in_forked_child();
void check_process();

// One per process. Steps run in order, one at a time, on one background thread, the step thread; a brief one that is
// awaited may run on the thread that waits. Threads and locks are said as
// docs/threads.md defines it; a function of which nothing is said: "Any thread. Takes Engine::mutex."
class Engine {
 public:
  Engine(Backend& backend, Comm& comm);
  // Waits for running steps, joins the step thread. No other thread uses the engine.
  ~Engine();

  // Forgets plans that were made with other options. Program threads, without the GIL. Takes Engine::planning.
  void set_options(CompileOptions options);
  CompileOptions options() const;
  std::string kinds_axis() const;  // DeviceKinds::axis of the options
  // The step thread calls `translate` with none of the engine's locks.
  void set_translator(ErrorTranslator translate);
  // Finds or compiles a plan; runs nothing. Throws ShardingError. Where a program was planned that differs by sizes
  // alone, a step is decided as that was. What is planned for itself is not counted, and last_plan() does not give it.
  // Program threads, without the GIL. Takes Engine::planning.
  PlanRef plan(const Graph& graph, PlanFor purpose = PlanFor::step);
  // Whether the plan, which was found before, is the one that its graph would be given now; counted as one that is
  // found. Program threads, without the GIL. Takes Engine::planning.
  bool reuse(const PlanRef& plan);
  // From now on what is decided for programs is kept in this folder, and found there by later processes. `version`: of
  // what decides; what another one has decided is not found. Program threads, without the GIL. Takes Engine::planning.
  void keep_precedents(const std::string& folder, const std::string& version);
  // Waits until no step waits behind the one that runs, so that the program is not far ahead of its steps. Program
  // threads, without the GIL.
  void wait_for_room();
  // Queues a run, at once, or runs it. `outputs` get their shardings at once and their shards later; the error of a run
  // that fails is kept for `rethrow`, and its outputs are failed. Memory of an input that an output replaces
  // (Output::donates) is reused if nobody but this run holds the input; if the run fails after that, outputs that are
  // complete are kept. Program threads, without the GIL, one at a time (the bridge holds the recorder's lock): the
  // order of the calls is the order of the steps. Takes Engine::submitting.
  void submit(const PlanRef& plan, std::vector<DataRef> inputs, std::vector<Param> params, std::vector<DataRef> outputs,
              RunOn thread = RunOn::step_thread);
  Standing standing() const;
  // After a failure: what was compared in steps from `agreed` on counts as not compared, and the next step has the
  // number `next`. Forgets all plans, since what a plan is may depend on the step that it was made for, and not every
  // process may have made that step. REQUIRES: no step is queued or runs. Program threads, without the GIL. Takes
  // Engine::planning and Engine::submitting.
  void resume(int64_t agreed, int64_t next);
  // The plan that was asked for last; null: none was.
  PlanRef last_plan() const;
  // Takes no lock.
  Comm& comm();
  // Whether no step is queued or runs.
  bool idle() const;
  // Waits until every step that was queued before the call has ended. Program threads, without the GIL.
  void wait();
  // Raises, once, the error of a step that failed since the last call.
  void rethrow();
  StepCounters counters() const;
  void reset_counters();
  // Gives the compiler in force what plans have run, as their next runs would. Program threads, without the GIL. Takes
  // Engine::planning.
  void ask_compiler();
  // All three: Program threads, without the GIL. Takes Engine::planning.
  void clear_cache();
  size_t plans_kept() const;
  int64_t plan_bytes_kept() const;  // estimated

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spmdx
