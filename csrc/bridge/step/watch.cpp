// SPDX-License-Identifier: Apache-2.0
// Watch: one observer, or both, one inside the other.
#include "bridge/step/watch.h"

#include <mutex>

#include "bridge/python/gil.h"
#include "bridge/recorder/engine.h"
#include "bridge/step/measured.h"
#include "bridge/step/profiled.h"

namespace spmdx::bridge {
namespace {

// Times are taken inside of the profiler's ranges.
class Both final : public Observer {
 public:
  void enter() override { outer_.enter(), inner_.enter(); }
  void leave() override { inner_.leave(), outer_.leave(); }
  void begin_plan(const Graph& traced) override { outer_.begin_plan(traced), inner_.begin_plan(traced); }
  void begin_step(int64_t number, const std::shared_ptr<const Plan>& plan) override {
    outer_.begin_step(number, plan), inner_.begin_step(number, plan);
  }
  void begin_node(const Graph& graph, NodeId node) override {
    outer_.begin_node(graph, node), inner_.begin_node(graph, node);
  }
  void next_shard() override { inner_.next_shard(), outer_.next_shard(); }
  void begin_wait(const Graph& graph, NodeId node) override {
    outer_.begin_wait(graph, node), inner_.begin_wait(graph, node);
  }
  void end() override { inner_.end(), outer_.end(); }

 private:
  Observer& outer_ = profiled();
  Observer& inner_ = measuring();
};

std::mutex mutex;
bool for_profiler = false, for_times = false;  // guarded by mutex

Observer* chosen() {
  static auto* both = new Both;  // steps may run until the process ends
  if (for_profiler && for_times) return both;
  return for_profiler ? &profiled() : for_times ? &measuring() : nullptr;
}

void watch(bool& what, bool on) {
  NoGil no_gil;
  {
    std::lock_guard lock(mutex);
    what = on;
    set_observer(chosen());
  }
  engine().wait();
}

}  // namespace

void watch_for_profiler(bool told) {
  if (told) join_profile();
  watch(for_profiler, told);
  if (!told) forget_profile();
}

void watch_for_times(bool taken) { watch(for_times, taken); }

}  // namespace spmdx::bridge
