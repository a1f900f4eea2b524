// SPDX-License-Identifier: Apache-2.0
// Search: makes an assignment and improves it; with a gather budget a second time, for what is worth keeping.
#include "passes/search/search.h"

#include <memory>

#include "passes/search/assignment.h"
#include "passes/search/regather.h"

namespace spmdx {
namespace {

std::unique_ptr<const Assignment> assign(const Graph& graph, const CompileOptions& options,
                                         const std::vector<bool>& transient) {
  auto assignment = std::make_unique<Assignment>(graph, options, transient);
  search_locally(*assignment);
  return assignment;
}

}  // namespace

Decisions decisions_of(const Assignment& assignment, std::vector<bool> transient) {
  return {assignment.all_choices(), std::move(transient), assignment.total(), assignment.moving(), assignment.effort()};
}

Decisions decide(const Graph& graph, const CompileOptions& options) {
  std::vector<bool> transient = transient_values(graph);
  if (options.gather_budget == kNoLimit) transient.assign(transient.size(), false);
  auto assignment = assign(graph, options, transient);
  if (options.gather_budget != 0 && options.gather_budget != kNoLimit) {
    const std::vector<bool> before = transient;
    keep_within(options.gather_budget, *assignment, transient);
    if (transient != before) assignment = assign(graph, options, transient);
  }
  return decisions_of(*assignment, std::move(transient));
}

void search(Draft& draft, const CompileOptions& options) {
  if (!draft.graph.mesh || draft.decisions) return;
  draft.decisions = draft.follows ? decide_like(*draft.follows, draft.follows_itself, draft.graph, options)
                                  : decide(draft.graph, options);
  draft.strays |= !draft.decisions;
}

}  // namespace spmdx
