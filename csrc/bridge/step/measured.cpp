// SPDX-License-Identifier: Apache-2.0
// Measured: a row for each range that ended; on an accelerator a range ends when its kernels have.
#include "bridge/step/measured.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "bridge/backend/shard_device.h"

namespace spmdx::bridge {
namespace {

// What the thread gave to an accelerator has ended.
void wait_for_kernels() {
  const c10::Device device = shard_device();
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

struct Open {
  MeasuredRange range;
  bool counts = true;       // plans are not measured here
  int64_t shard_began = 0;  // of the shard that is computed now
  int64_t waited = 0;       // by it, for collectives
};

// The ranges of this thread that have not ended.
std::vector<Open>& open_ranges() {
  thread_local std::vector<Open> instance;
  return instance;
}

class Measuring final : public Observer {
 public:
  void enter() override {}
  void leave() override {}
  void begin_plan(const Graph&) override { begin(MeasuredKind::node, 0, false); }
  void begin_step(int64_t, const std::shared_ptr<const Plan>& plan) override {
    {
      std::lock_guard lock(mutex_);
      measured_.steps.push_back(plan);
    }
    begin(MeasuredKind::step, 0, true);
  }
  void begin_node(const Graph& graph, NodeId node) override { begin(MeasuredKind::node, node, is_of_step(graph)); }
  void begin_wait(const Graph& graph, NodeId node) override { begin(MeasuredKind::wait, node, is_of_step(graph)); }
  void next_shard() override {
    wait_for_kernels();
    end_shard(open_ranges().back(), now_ns());
  }
  void end() override {
    Open ended = open_ranges().back();
    open_ranges().pop_back();
    if (!ended.counts) return;
    wait_for_kernels();
    ended.range.end_ns = now_ns();
    end_shard(ended, ended.range.end_ns);
    if (ended.range.kind == MeasuredKind::wait && !open_ranges().empty())
      open_ranges().back().waited += ended.range.end_ns - ended.range.begin_ns;
    std::lock_guard lock(mutex_);
    measured_.ranges.push_back(ended.range);
  }
  Measured take() {
    std::lock_guard lock(mutex_);
    return std::exchange(measured_, {});
  }

 private:
  void begin(MeasuredKind kind, NodeId node, bool counts) {
    Open open{{.kind = kind, .node = node}, counts};
    {
      std::lock_guard lock(mutex_);
      open.range.step = measured_.steps.empty() ? 0 : measured_.steps.size() - 1;
    }
    open.range.begin_ns = open.shard_began = now_ns();
    open_ranges().push_back(open);
  }

  // Not one that began before times were taken, nor a trial.
  bool is_of_step(const Graph& graph) {
    std::lock_guard lock(mutex_);
    return !measured_.steps.empty() && &graph == &measured_.steps.back()->executable->graph();
  }

  static void end_shard(Open& open, int64_t now) {
    open.range.longest_ns = std::max(open.range.longest_ns, now - open.shard_began - open.waited);
    open.range.shards += 1;
    open.shard_began = now;
    open.waited = 0;
  }

  std::mutex mutex_;
  Measured measured_;  // guarded by mutex_
};

Measuring& instance() {
  static auto* made = new Measuring;  // steps may run until the process ends
  return *made;
}

}  // namespace

Observer& measuring() { return instance(); }

Measured take_measured() { return instance().take(); }

}  // namespace spmdx::bridge
