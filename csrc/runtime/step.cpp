// SPDX-License-Identifier: Apache-2.0
// Engine: plans at the caller, runs on one background thread, keeps the first error for whoever asks.
#include "runtime/step.h"

#include <unistd.h>

#include <atomic>
#include <deque>
#include <thread>
#include <utility>

#include "base/error.h"
#include "runtime/differences.h"
#include "runtime/plan_cache.h"

namespace spmdx {
namespace {

struct Job {
  int64_t number = 0;  // counted from 0, the same in every process
  PlanRef plan;
  std::vector<DataRef> inputs;
  std::vector<Param> params;
  std::vector<DataRef> outputs;
};

// Bytes one device receives so that this op sees its operands whole.
int64_t gathered_bytes(const Graph& graph, const Node& node) {
  int64_t bytes = 0;
  for (ValueId input : node.inputs) {
    if (input == kNone || graph.value(input).producer == kNone) continue;
    const Node& producer = graph.nodes[graph.value(input).producer];
    if (moves_bytes(producer)) bytes += producer.bytes;
  }
  return bytes;
}

void count_work(Plan& plan) {
  const Graph& graph = plan.executable->graph();
  for (const Node& node : graph.nodes) {
    if (moves_bytes(node)) {
      plan.collectives += 1;
      plan.wire_bytes += node.bytes;
    } else if (graph.mesh && !is_collective(node) && !node.inputs.empty() && rule_for(node.call)->fallback) {
      plan.fallbacks.push_back({node.call->op, gathered_bytes(graph, node), node.source});
    }
  }
}

// Inputs whose memory the run may take: replaced by an output, and held by this job and its way back alone.
std::vector<bool> spare_inputs(const Job& job) {
  std::vector<bool> spare(job.inputs.size(), false);
  const Graph& graph = job.plan->executable->graph();
  for (size_t i = 0; i < job.outputs.size(); ++i) {
    const Output& output = graph.outputs[i];
    if (!output.donates || job.outputs[i]->fallback() != job.inputs[output.tied]) continue;
    spare[output.tied] = job.inputs[output.tied].use_count() == 2;
  }
  return spare;
}

// A line of the user's that a step is known by.
SourceId first_source(const Graph& graph) {
  for (const Node& node : graph.nodes)
    if (node.source) return node.source;
  return 0;
}

// Equal in processes that run the same program with the same options.
uint64_t fingerprint_of(const Plan& plan) {
  return std::hash<std::string>{}(print(plan.traced) + print(plan.executable->graph()));
}

// What the host feeds to a step must be the same everywhere: numbers, and tensors that came whole.
uint64_t fingerprint_of(const Job& job, Backend& backend) {
  uint64_t h = job.plan->fingerprint;
  for (uint32_t i = 0; i < job.plan->traced.num_params; ++i) h = hash_combine(h, job.params[i].integer);
  for (const DataRef& input : job.inputs)
    if (input->is_new_upload()) h = hash_combine(h, backend.digest(input->wait().at(0)));
  return h;
}

// The program and what is fed to it, for the others to compare with theirs.
std::string account_of(const Job& job, Backend& backend, const SourcePrinter& source) {
  std::string text = print(job.plan->traced, source) + "\n" + kValuesHead + "\n";
  const Graph& graph = job.plan->traced;
  for (size_t i = 0; i < job.inputs.size(); ++i) {
    if (job.inputs[i]->sharding() || !job.inputs[i]->ready()) continue;
    const Input& input = graph.inputs[i];
    const std::string line = source && input.source ? "  // " + source(input.source) : "";
    text += "input %" + std::to_string(input.value) + " " + str(graph.values[input.value].type, nullptr) +
            " with digest " + std::to_string(backend.digest(job.inputs[i]->wait().at(0))) + line + "\n";
  }
  for (uint32_t i = 0; i < graph.num_params; ++i)
    text += "number #" + std::to_string(i) + " is " + std::to_string(job.params[i].real) + " or " +
            std::to_string(job.params[i].integer) + "\n";
  return text;
}

// Whoever waits for the outputs goes on.
void deliver(const Job& job, RunResult result) {
  for (size_t i = 0; i < job.outputs.size(); ++i) {
    const bool complete = !result.error || (i < result.outputs.size() && !result.outputs[i].empty());
    complete ? job.outputs[i]->fill(std::move(result.outputs[i])) : job.outputs[i]->fail(result.error);
  }
}

}  // namespace

bool moves_bytes(const Node& node) {
  if (!is_collective(node)) return false;
  const Collective kind = collective_kind(node);
  return kind != Collective::slice && kind != Collective::to_partial;
}

void set_shardings(const Plan& plan, const std::vector<DataRef>& outputs) {
  const Graph& graph = plan.executable->graph();
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i]->set_sharding(graph.values[graph.outputs[i].value].sharding);
}

struct Engine::Impl {
  Impl(Backend& owner, Comm& exchange) : backend(owner), comm(exchange), exchanger(exchange) {}

  // A child of fork has no background thread, so that waiting for it would never end.
  void check_process() const {
    if (process != 0 && process != getpid())
      throw std::runtime_error(
          "spmdx was used in a process forked after its first step. The thread that runs steps "
          "exists only in the parent. Start processes with the method 'spawn' instead.");
  }

  // Called with the lock held.
  void start_thread() {
    if (process != 0) return;
    process = getpid();
    thread = std::thread([this] { work(); });
  }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stopping || !queue.empty(); });
      if (queue.empty()) return;
      Job job = std::move(queue.front());
      queue.pop_front();
      running = true;
      changed.notify_all();
      const ErrorTranslator translator = translate;
      lock.unlock();
      RunResult result = run(job, translator);
      lock.lock();
      count(*job.plan, result.error);
      lock.unlock();
      deliver(job, std::move(result));
      job = Job{};  // buffers are freed before anybody is told that the step has ended
      lock.lock();
      running = false;
      changed.notify_all();
    }
  }

  RunResult run(const Job& job, const ErrorTranslator& translator) {
    try {
      comm.agree({job.number, first_source(job.plan->traced), {}}, [&] { return account_of(job, backend, source()); });
      return job.plan->executable->run(job.inputs, job.params, translator, spare_inputs(job), job.number);
    } catch (...) {
      return {{}, std::current_exception()};
    }
  }

  SourcePrinter source() const {
    std::lock_guard lock(planning);
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
  Exchanger exchanger;
  mutable std::mutex planning;  // held while a plan is looked up or compiled
  PlanCache cache;              // guarded by planning
  CompileOptions options;       // guarded by planning
  std::mutex mutex;             // guards everything below
  std::condition_variable changed;
  ErrorTranslator translate;
  std::deque<Job> queue;
  int64_t next = 0;  // number of a step
  bool running = false, stopping = false;
  PlanRef last;
  std::exception_ptr first_error;
  StepCounters counters;
  std::atomic<pid_t> process = 0;  // the one that has the thread
  std::thread thread;
};

Engine::Engine(Backend& backend, Comm& comm) : impl_(std::make_unique<Impl>(backend, comm)) {}

Engine::~Engine() {
  if (!impl_->thread.joinable()) return;
  if (impl_->process != getpid()) {  // a forked child: the thread is not there to be joined
    impl_->thread.detach();
    return;
  }
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
}

void Engine::set_options(CompileOptions options) {
  std::lock_guard lock(impl_->planning);
  impl_->options = std::move(options);
  impl_->cache.clear();
}

CompileOptions Engine::options() const {
  std::lock_guard lock(impl_->planning);
  return impl_->options;
}

void Engine::set_translator(ErrorTranslator translate) {
  std::lock_guard lock(impl_->mutex);
  impl_->translate = std::move(translate);
}

PlanRef Engine::plan(const Graph& graph, bool reported) {
  impl_->check_process();
  std::lock_guard planning(impl_->planning);
  const uint64_t hash = structural_hash(graph);
  PlanRef plan = impl_->cache.find(hash, graph);
  const bool known = plan != nullptr;
  if (!known) {
    auto fresh = std::make_shared<Plan>();
    fresh->traced = graph;
    Graph compiled = graph;
    compile(compiled, impl_->options);
    fresh->executable = std::make_unique<Executable>(std::move(compiled), impl_->backend, impl_->exchanger);
    count_work(*fresh);
    if (impl_->comm.processes().count > 1) fresh->fingerprint = fingerprint_of(*fresh);
    plan = fresh;
    impl_->cache.insert(hash, plan);
  }
  if (!reported) return plan;
  std::lock_guard lock(impl_->mutex);
  (known ? impl_->counters.plan_cache_hits : impl_->counters.plans_compiled) += 1;
  impl_->last = plan;
  return plan;
}

void Engine::run(const PlanRef& plan, std::vector<DataRef> inputs, std::vector<Param> params,
                 std::vector<DataRef> outputs) {
  const Graph& compiled = plan->executable->graph();
  internal_check(outputs.size() == compiled.outputs.size(), "a step was submitted with another number of outputs");
  for (size_t i = 0; i < outputs.size(); ++i)
    outputs[i]->set_sharding(compiled.values[compiled.outputs[i].value].sharding);
  std::unique_lock lock(impl_->mutex);
  impl_->start_thread();
  impl_->changed.wait(lock, [this] { return impl_->queue.empty(); });
  Job job{impl_->next++, plan, std::move(inputs), std::move(params), std::move(outputs)};
  if (impl_->comm.processes().count > 1) impl_->comm.announce(fingerprint_of(job, impl_->backend));
  impl_->queue.push_back(std::move(job));
  impl_->changed.notify_all();
}

PlanRef Engine::last_plan() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->last;
}

Comm& Engine::comm() { return impl_->comm; }

void Engine::wait() {
  impl_->check_process();
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [this] { return impl_->queue.empty() && !impl_->running; });
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

void Engine::clear_cache() {
  std::lock_guard lock(impl_->planning);
  impl_->cache.clear();
}

}  // namespace spmdx
