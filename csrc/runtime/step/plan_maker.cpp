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
PrecedentRef PlanMaker::precedent_of(const Graph& graph, const CompileOptions& options) {
  if (PrecedentRef found = precedents_.find(graph)) return found;
  PrecedentRef kept = files_ ? files_->find(graph, options) : nullptr;
  if (kept) precedents_.insert(graph, kept);
  return kept;
}

std::shared_ptr<Plan> PlanMaker::make(const Graph& graph, const CompileOptions& options, PlanFor purpose) {
  const bool may_follow = purpose == PlanFor::step && graph.mesh;
  const PrecedentRef like = may_follow ? precedent_of(graph, options) : nullptr;
  auto plan = make_plan(graph, options, backend_, queue_, are_several(), like.get());
  if (may_follow && !plan->follows) {
    precedents_.insert(graph, plan->precedent);
    if (files_) files_->insert(graph, options, *plan->precedent);
  }
  plan->precedent = nullptr;
  return plan;
}

PlanMaker::Made PlanMaker::plan(const Graph& graph, const CompileOptions& options, PlanFor purpose) {
  const uint64_t key = structural_hash(graph);
  PlanCache& cache = cache_of(purpose);
  if (PlanRef found = cache.find(key, graph)) return {found, true};
  const auto begun = std::chrono::steady_clock::now();
  const PlanRange range(graph);
  const std::shared_ptr<Plan> fresh = make(graph, options, purpose);
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begun;
  const bool reported = purpose != PlanFor::itself;
  if (reported) fresh->repeat = repeats_.note(with_given_starts(*fresh), took.count());
  if (reported) tell_of_plan(*fresh, took.count());
  cache.insert(key, fresh, are_several());
  return {fresh, false};
}

void PlanMaker::clear() {
  cache_.clear();
  asked_.clear();
  precedents_.clear();
}

}  // namespace spmdx
