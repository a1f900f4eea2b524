// SPDX-License-Identifier: Apache-2.0
// Executor: prepares a plan once, and hands out runs of it.
#include "runtime/step/executor.h"

#include <atomic>
#include <mutex>

#include "base/error.h"
#include "runtime/program/bytes.h"
#include "runtime/program/program.h"
#include "runtime/program/run.h"
#include "runtime/segments/segment_kernel.h"

namespace spmdx {

namespace {

// The node that failed, which may be one of a segment's, and its error.
FailedWithin failure_of(NodeId node, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const FailedWithin& within) {
    return within;
  } catch (...) {
    return {node, error};
  }
}

}  // namespace

struct Executable::Impl {
  Impl(Graph compiled, Backend& owner, CollectiveQueue& collectives)
      : graph(std::move(compiled)),
        backend(owner),
        collective_queue(collectives),
        peak(predict_peak_bytes(graph)),
        take_over(graph, backend) {}

  Graph graph;
  Backend& backend;
  CollectiveQueue& collective_queue;
  PeakBytes peak;
  std::atomic<int64_t> held = bytes_of(graph);
  std::once_flag prepared;
  Program program;
  TakeOver take_over;
  mutable std::mutex peaks_mutex;
  std::vector<MeasuredPeak> measured_peaks;
};

Executable::Executable(Graph graph, Backend& backend, CollectiveQueue& collective_queue)
    : impl_(std::make_unique<Impl>(std::move(graph), backend, collective_queue)) {}

Executable::~Executable() = default;

void Executable::prepare() {
  std::call_once(impl_->prepared, [this] {
    const Processes processes = impl_->collective_queue.comm().processes();
    impl_->program = spmdx::prepare(impl_->graph, impl_->backend, processes);
    impl_->held += bytes_of(impl_->program);
  });
}

const Graph& Executable::graph() const { return impl_->graph; }

PeakBytes Executable::peak() const { return impl_->peak; }

int64_t Executable::bytes_held() const { return impl_->held; }

std::vector<MeasuredPeak> Executable::measured_peaks() const {
  const std::lock_guard lock(impl_->peaks_mutex);
  return impl_->measured_peaks;
}

SegmentsOfPlan Executable::segments() const { return impl_->take_over.segments(); }

void Executable::ask_compiler() { impl_->take_over.ask(); }

RunResult Executable::run(const std::vector<DataRef>& inputs, const std::vector<Param>& params,
                          const ErrorTranslator& translate, const std::vector<bool>& spare, int64_t step) {
  prepare();
  internal_check(params.size() >= impl_->graph.num_params, "a run got fewer parameters than its plan has");
  const std::shared_ptr<const Program> program = impl_->take_over.current(impl_->program, params);
  Run run(impl_->graph, *program, impl_->backend, impl_->collective_queue, step);
  run.load(inputs, spare);
  RunResult result;
  try {
    run.execute(params);
    result.outputs = run.take_outputs();
  } catch (...) {
    const auto [id, error] = failure_of(run.node(), std::current_exception());
    impl_->collective_queue.comm().failed(run.progress(), error,
                                          run.gave_up());  // ends what is under way in all processes
    const Node& node = impl_->graph.nodes[id];
    return {run.gave_up() ? run.complete_outputs() : std::vector<Shards>{}, translate ? translate(error, node) : error};
  }
  const std::lock_guard lock(impl_->peaks_mutex);
  impl_->measured_peaks = run.measured_peaks();
  return result;
}

}  // namespace spmdx
