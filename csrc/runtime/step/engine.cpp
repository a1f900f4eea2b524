// SPDX-License-Identifier: Apache-2.0
// Engine: plans on the caller's thread, runs on one background thread, and keeps the first error until it is asked for.
#include "runtime/step/engine.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/waiting.h"
#include "rules/lookup.h"
#include "runtime/data/observer.h"
#include "runtime/step/job.h"
#include "runtime/step/plan_maker.h"

namespace spmdx {
namespace {

std::atomic<bool> forked = false;

}  // namespace

bool in_forked_child() { return forked.load(std::memory_order_relaxed); }

void check_process() {
  if (!in_forked_child()) return;
  throw std::runtime_error(
      "spmdx was used in a process forked after its first step. The thread that runs steps exists only in the parent. "
      "Keep on the CPU what the processes share, or start them with the method 'spawn'.");
}

struct Engine::Impl {
  Impl(Backend& owner, Comm& exchange)
      : backend(owner), comm(exchange), collective_queue(exchange), maker(owner, exchange, collective_queue) {}

  // Called with the lock held.
  void start_thread() {
    if (thread.joinable()) return;
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
    thread = std::thread([this] { work(); });
  }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      work_there.wait(lock, [this] { return !running && (stopping || !queue.empty()); });
      if (queue.empty()) return;
      Job job = std::move(queue.front());
      queue.pop_front();
      begin(job);
      changed.notify_all();
      backend.use_settings(job.settings);
      run_to_end(std::move(job), lock);
    }
  }

  // Called with the lock held, both.
  bool is_idle() const { return queue.empty() && !running; }
  void begin(const Job& job) {
    running = true;
    running_number = job.number;
  }

  // Called with the lock held, which it gives up while the step runs. REQUIRES: the step was begun by this thread.
  void run_to_end(Job job, std::unique_lock<std::mutex>& lock) {
    const ErrorTranslator translator = translate;
    lock.unlock();
    RunResult result = run(job, translator);
    const bool changes = changes_values(job);
    lock.lock();
    count(*job.plan, result.error);
    if (!result.error) standing.done = job.number + 1;
    if (!result.error && changes) standing.changed = job.number + 1;
    lock.unlock();
    deliver(job, std::move(result));
    job = Job{};  // frees buffers before any wait for the step ends
    lock.lock();
    running = false;
    changed.notify_all();
  }

  // Whether no step before this number is queued or runs; other threads may go on to submit. Called with the lock held.
  bool ended(int64_t number) const {
    return running ? running_number >= number : queue.empty() || queue.front().number >= number;
  }

  RunResult run(const Job& job, const ErrorTranslator& translator) {
    const Progress begin{job.number, first_source(job.plan->traced), {}};
    const StepRange range(job.number, job.plan);
    try {
      comm.agree(begin, [&] { return account_of(job, backend, source()); });
      {
        std::lock_guard lock(mutex);
        standing.agreed = job.number + 1;
      }
      note_run(bytes_of_inputs(job), job.plan->executable->peak().bytes);
      return job.plan->executable->run(job.inputs, job.params, translator, spare_inputs(job), job.number);
    } catch (...) {
      comm.failed(begin, std::current_exception(), false);
      return {{}, std::current_exception()};
    }
  }

  SourcePrinter source() {
    std::lock_guard lock(mutex);
    return options.source;
  }

  // Before anybody can read the results. Called with the lock held.
  void count(const Plan& plan, const std::exception_ptr& error) {
    counters.steps += 1;
    if (error) {
      if (!first_error) first_error = error;
      return;
    }
    counters.collectives += plan.collectives;
    counters.wire_bytes += plan.wire_bytes;
    for (const Fallback& fallback : plan.fallbacks) counters.fallbacks[fallback.op] += 1;
  }

  Backend& backend;
  Comm& comm;
  CollectiveQueue collective_queue;
  std::mutex planning;    // held while a plan is looked up or compiled
  PlanMaker maker;        // guarded by planning
  std::mutex submitting;  // held while a step is announced, so that steps run in the order of their numbers
  Uncompared uncompared;  // guarded by submitting
  // Guards everything below. A leaf lock: while it is held no buffer is read or freed, since that may need other locks.
  std::mutex mutex;
  std::condition_variable changed, work_there;  // the step thread waits for the latter
  CompileOptions options;
  ErrorTranslator translate;
  std::deque<Job> queue;
  Standing standing;
  bool running = false, stopping = false;
  int64_t running_number = 0;
  PlanRef last;
  std::exception_ptr first_error;
  StepCounters counters;
  std::thread thread;
};

Engine::Engine(Backend& backend, Comm& comm) : impl_(std::make_unique<Impl>(backend, comm)) {}

Engine::~Engine() {
  if (!impl_->thread.joinable()) return;
  if (in_forked_child()) {  // the thread is not there to be joined
    impl_->thread.detach();
    return;
  }
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->work_there.notify_all();
  impl_->thread.join();
}

void Engine::set_options(CompileOptions options) {
  std::lock_guard planning(impl_->planning);
  impl_->maker.clear();
  std::lock_guard lock(impl_->mutex);
  impl_->options = std::move(options);
}

CompileOptions Engine::options() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->options;
}

std::string Engine::kinds_axis() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->options.kinds.axis;
}

void Engine::set_translator(ErrorTranslator translate) {
  std::lock_guard lock(impl_->mutex);
  impl_->translate = std::move(translate);
}

PlanRef Engine::plan(const Graph& graph, PlanFor purpose) {
  check_process();
  std::lock_guard planning(impl_->planning);
  auto [plan, known] = impl_->maker.plan(graph, options(), purpose);
  if (purpose == PlanFor::itself) return plan;
  PlanRef last = plan;  // the one before dies after the lock is given up
  std::lock_guard lock(impl_->mutex);
  (known ? impl_->counters.plan_cache_hits : impl_->counters.plans_compiled) += 1;
  impl_->counters.plans_searched += !known && graph.mesh && !plan->follows;
  impl_->last.swap(last);
  return plan;
}

bool Engine::reuse(const PlanRef& plan) {
  check_process();
  std::lock_guard planning(impl_->planning);
  if (!impl_->maker.reuse(plan)) return false;
  PlanRef last = plan;
  std::lock_guard lock(impl_->mutex);
  impl_->counters.plan_cache_hits += 1;
  impl_->last.swap(last);
  return true;
}

void Engine::keep_precedents(const std::string& folder, const std::string& version) {
  std::lock_guard planning(impl_->planning);
  impl_->maker.keep_in(folder, version);
}

void Engine::submit(const PlanRef& plan, std::vector<DataRef> inputs, std::vector<Param> params,
                    std::vector<DataRef> outputs, RunOn thread) {
  internal_check(outputs.size() == plan->executable->graph().outputs.size(),
                 "a step was submitted with another number of outputs");
  set_shardings(*plan, outputs);
  std::unique_lock submitting(impl_->submitting);
  Job job{0, plan, std::move(inputs), std::move(params), std::move(outputs), impl_->backend.settings_of_thread()};
  {
    std::lock_guard lock(impl_->mutex);
    job.number = impl_->standing.submitted++;
  }
  const bool alone = impl_->comm.processes().count == 1;
  if (!alone) impl_->comm.announce(fingerprint_of(job, impl_->backend, impl_->uncompared));
  std::unique_lock lock(impl_->mutex);
  impl_->start_thread();
  const bool may_wait = impl_->backend.compilers() != nullptr;  // for a kernel, where nobody hears Ctrl-C
  if (thread == RunOn::caller_if_brief && alone && plan->brief && !may_wait && impl_->is_idle()) {
    impl_->begin(job);
    submitting.unlock();
    impl_->counters.steps_of_readers += 1;
    impl_->run_to_end(std::move(job), lock);
    if (impl_->queue.empty()) return;
  } else {
    impl_->queue.push_back(std::move(job));
  }
  impl_->work_there.notify_one();
}

void Engine::wait_for_room() {
  check_process();
  std::unique_lock lock(impl_->mutex);
  wait_until_ready(impl_->changed, lock, [this] { return impl_->queue.empty(); });
}

Standing Engine::standing() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->standing;
}

void Engine::resume(int64_t agreed, int64_t next) {
  clear_cache();
  std::lock_guard submitting(impl_->submitting);
  std::lock_guard lock(impl_->mutex);
  internal_check(impl_->queue.empty() && !impl_->running, "the numbers of steps were changed while one ran");
  impl_->uncompared.add(agreed, next);
  impl_->standing = {next, next, next, next};
}

PlanRef Engine::last_plan() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->last;
}

Comm& Engine::comm() { return impl_->comm; }

bool Engine::idle() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->is_idle();
}

void Engine::wait() {
  check_process();
  std::unique_lock lock(impl_->mutex);
  const int64_t end = impl_->standing.submitted;
  wait_until_ready(impl_->changed, lock, [this, end] { return impl_->ended(end); });
}

void Engine::rethrow() {
  std::unique_lock lock(impl_->mutex);
  if (const std::exception_ptr error = std::exchange(impl_->first_error, nullptr)) {
    lock.unlock();
    std::rethrow_exception(error);
  }
}

StepCounters Engine::counters() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->counters;
}

void Engine::reset_counters() {
  std::lock_guard lock(impl_->mutex);
  impl_->counters = {};
}

void Engine::ask_compiler() {
  std::vector<PlanRef> plans;
  {
    std::lock_guard lock(impl_->planning);
    plans = impl_->maker.cache().all();
  }
  for (const PlanRef& plan : plans) plan->executable->ask_compiler();
}

size_t Engine::plans_kept() const {
  std::lock_guard lock(impl_->planning);
  return impl_->maker.cache().size();
}

int64_t Engine::plan_bytes_kept() const {
  std::lock_guard lock(impl_->planning);
  return impl_->maker.cache().bytes();
}

void Engine::clear_cache() {
  std::lock_guard lock(impl_->planning);
  impl_->maker.clear();
}

}  // namespace spmdx
