// SPDX-License-Identifier: Apache-2.0
// PlanMaker: the cache, then precedents, then a search.
#include "runtime/step/plan_maker.h"

#include <chrono>

#include "runtime/data/observer.h"

namespace spmdx {
namespace {

// The program as plans tell it apart: starts that the plan leaves open are 0.
Graph with_given_starts(const Plan& plan) {
  std::vector<int64_t> given = plan.starts.values;
  for (size_t i = 0; i < given.size(); ++i)
    if (plan.starts.open[i]) given[i] = 0;
  return given.empty() ? plan.traced : with_starts(plan.traced, given);
}

}  // namespace

// In the order that makes no difference between a process that has a file of this program, which says what would be
// decided anyway, and one that has none.
std::shared_ptr<Plan> PlanMaker::make(const Graph& graph, const CompileOptions& options, PlanFor purpose,
                                      bool may_follow) {
  const bool is_searched = purpose == PlanFor::step && graph.mesh;
  const PrecedentRef known = is_searched && may_follow ? precedents_.find(graph) : nullptr;
  const PrecedentRef kept = is_searched && !known && files_ ? files_->find(graph, options) : nullptr;
  auto plan = make_plan(graph, options, backend_, queue_, are_several(), known ? known.get() : kept.get());
  if (is_searched && kept && plan->follows) precedents_.insert(graph, kept);
  if (is_searched && !plan->follows) {
    precedents_.insert(graph, plan->precedent);
    if (files_) files_->insert(graph, options, *plan->precedent);
  }
  plan->precedent = nullptr;
  return plan;
}

PlanMaker::Made PlanMaker::plan(const Graph& graph, const CompileOptions& options, PlanFor purpose) {
  const uint64_t key = structural_hash(graph);
  PlanCache& cache = cache_of(purpose);
  const PlanRef found = cache.find(key, graph);
  if (found && !(found->provisional && ++found->times_found >= kWorthASearch)) return {found, true};
  if (found) cache.drop(found);
  const auto begun = std::chrono::steady_clock::now();
  const PlanRange range(graph);
  const std::shared_ptr<Plan> fresh = make(graph, options, purpose, found == nullptr);
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begun;
  const bool reported = purpose != PlanFor::itself;
  if (reported) fresh->repeat = repeats_.note(with_given_starts(*fresh), took.count());
  if (reported) tell_of_plan(*fresh, took.count());
  cache.insert(key, fresh, are_several());
  return {fresh, false};
}

bool PlanMaker::reuse(const PlanRef& plan) {
  if (!cache_.touch(plan)) return false;
  if (!plan->provisional) return true;
  return plan->times_found + 1 < kWorthASearch && ++plan->times_found;
}

void PlanMaker::clear() {
  cache_.clear();
  asked_.clear();
  precedents_.clear();
}

}  // namespace spmdx
