// SPDX-License-Identifier: Apache-2.0
// Plan log: notes are kept while a plan is made, since planning calls no Python.
#include "bridge/plans/plan_log.h"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "bridge/python/gil.h"
#include "runtime/data/observer.h"
#include "runtime/step/plan.h"

namespace spmdx::bridge {
namespace {

constexpr size_t kMostNotes = 1024;  // of a program that plans and never ends a step

std::function<void(const PlanNote&)> logged;  // set once, with the GIL
std::mutex mutex;
std::vector<PlanNote> notes;  // guarded by mutex
std::atomic<bool> any{false};

void note(const Plan& plan, int64_t took_ns) {
  const Graph& graph = plan.executable->graph();
  const PlanNote made{.ops = static_cast<int64_t>(plan.traced.nodes.size()),
                      .devices = graph.mesh ? static_cast<int64_t>(graph.mesh->size()) : 1,
                      .collectives = plan.collectives,
                      .wire_bytes = plan.wire_bytes,
                      .peak_bytes = plan.executable->peak().bytes,
                      .took_ns = took_ns};
  std::lock_guard lock(mutex);
  if (notes.size() < kMostNotes) notes.push_back(made);
  any.store(true, std::memory_order_relaxed);
}

}  // namespace

void log_plans(std::function<void(const PlanNote&)> listener) {
  logged = std::move(listener);
  set_plan_listener(note);
}

void hand_over_plan_notes() {
  if (!any.load(std::memory_order_relaxed)) return;
  std::vector<PlanNote> taken;
  {
    std::lock_guard lock(mutex);
    taken.swap(notes);
    any.store(false, std::memory_order_relaxed);
  }
  const WithGil gil;
  for (const PlanNote& one : taken) logged(one);
}

}  // namespace spmdx::bridge
