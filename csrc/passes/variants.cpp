// SPDX-License-Identifier: Apache-2.0
// Variants: the same program in another form, which is kept where its plan is cheaper.
#include "passes/passes.h"
#include "passes/rewrites/merged_dims.h"
#include "passes/rewrites/split_views.h"
#include "passes/settings/limits.h"

namespace spmdx {
namespace {

// Searches once: the draft keeps what is decided, for partition.
int64_t total_ns(Draft& draft, const CompileOptions& options) {
  search(draft, options);
  return draft.decisions->total_ns;
}

Draft propagated(Graph graph, const CompileOptions& options) {
  propagate(graph, options);
  expand_composites(graph, options);
  return {std::move(graph), {}};
}

void keep_cheaper(Draft& best, Draft other, const CompileOptions& options) {
  if (total_ns(other, options) < total_ns(best, options)) best = std::move(other);
}

// Merges are looked for in `graph`, and tried beside what is in the draft.
void try_merges(const Graph& graph, Draft& best, const CompileOptions& options) {
  const std::vector<Merge> merges = blocked_merges(graph);
  for (size_t i = 0; i < merges.size() && i < kLimits.interleaved_dims; ++i)
    if (auto turned = interleave(graph, merges[i]))
      keep_cheaper(best, propagated(std::move(*turned), options), options);
}

}  // namespace

void try_interleaved(Draft& draft, const CompileOptions& options) {
  if (draft.graph.mesh) try_merges(Graph(draft.graph), draft, options);
}

void try_split_views(Draft& draft, const CompileOptions& options) {
  if (!draft.graph.mesh) return;
  auto pieces = see_split_views(draft.graph);
  if (!pieces) return;
  propagate(*pieces, options);
  keep_cheaper(draft, propagated(*pieces, options), options);
  try_merges(*pieces, draft, options);  // of selects of pieces, which an expansion replaces
}

}  // namespace spmdx
