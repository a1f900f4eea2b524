// SPDX-License-Identifier: Apache-2.0
// Variants: the same program in another form, which is kept where its plan is cheaper.
#include <optional>

#include "graph/rewrite.h"
#include "passes/passes.h"
#include "passes/rewrites/expand.h"
#include "passes/rewrites/merged_dims.h"
#include "passes/rewrites/split_views.h"
#include "passes/settings/limits.h"
#include "rules/lookup.h"

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
  return {std::move(graph)};
}

void keep_cheaper(Draft& best, Draft other, const CompileOptions& options) {
  if (total_ns(other, options) >= total_ns(best, options)) return;
  other.rolled = best.rolled;
  best = std::move(other);
}

// Merges are looked for in `graph`, and tried beside what is in the draft.
void try_merges(const Graph& graph, Draft& best, const CompileOptions& options) {
  const std::vector<Merge> merges = blocked_merges(graph);
  for (size_t i = 0; i < merges.size() && i < kLimits.interleaved_dims; ++i)
    if (auto turned = interleave(graph, merges[i]))
      keep_cheaper(best, propagated(std::move(*turned), options), options);
}

// How a value is made: as its producer was decided, or as an input lies.
ShardingRef made(const Draft& draft, ValueId value) {
  const NodeId producer = draft.graph.values[value].producer;
  if (producer == kNone) return nullptr;
  return draft.decisions->choices[producer]->placement.outputs[value - draft.graph.nodes[producer].output];
}

// The same as if the views that lead to it kept what was made before them: what a composite wants may be moved there.
ShardingRef made_before_views(const Draft& draft, ValueId value) {
  const NodeId producer = draft.graph.values[value].producer;
  if (producer == kNone) return made(draft, value);
  const Node& view = draft.graph.nodes[producer];
  const OpRuleRef rule = rule_for(view.call);
  if (rule->linearity != Linearity::movement || view.inputs.size() != 1) return made(draft, value);
  const ShardingRef before = made_before_views(draft, view.inputs[0]);
  const OpContext op{draft.graph.mesh, view.call.get(), rule.get(), false};
  const auto kept = before ? place(op, project(op, 0, before)) : std::nullopt;
  return kept && kept->inputs[0] == before ? kept->outputs[value - view.output] : made(draft, value);
}

// Time of moving operands only because the op cannot be cut as they are, but by what it is made of.
int64_t gathering_ns(const Draft& draft, NodeId node, const Topology& topology) {
  const Node& at = draft.graph.nodes[node];
  const OpRuleRef rule = rule_for(at.call);
  if (!rule->expand) return 0;
  const OpContext op{draft.graph.mesh, at.call.get(), rule.get(), true};
  int64_t ns = 0;
  for (size_t i = 0; i < at.inputs.size(); ++i) {
    const ShardingRef here = made_before_views(draft, at.inputs[i]),
                      wanted = draft.decisions->choices[node]->placement.inputs[i];
    if (here && here != wanted && cuts_composite(op, project(op, i, here)))
      ns += plan_reshard(op.type(i).dtype, op.type(i).shape, here, wanted, topology)->cost_ns;
  }
  return ns;
}

// Whether the op, expanded, could be cut as an operand that an expanded one makes. `carried`: what those make, by
// value.
bool follows(const Draft& draft, NodeId node, const std::vector<ShardingRef>& carried) {
  const Node& at = draft.graph.nodes[node];
  const OpRuleRef rule = rule_for(at.call);
  if (!rule->expand) return false;
  const OpContext op{draft.graph.mesh, at.call.get(), rule.get(), true};
  for (size_t i = 0; i < at.inputs.size(); ++i)
    if (const ShardingRef& here = carried[at.inputs[i]]; here && cuts_composite(op, project(op, i, here))) return true;
  return false;
}

// What the op makes if it is expanded, and cut as an operand is.
void carry(const Draft& draft, NodeId node, std::vector<ShardingRef>& carried) {
  const Node& at = draft.graph.nodes[node];
  const OpRuleRef rule = rule_for(at.call);
  const OpContext op{draft.graph.mesh, at.call.get(), rule.get(), true};
  for (size_t i = 0; i < at.inputs.size(); ++i) {
    const ShardingRef& before = carried[at.inputs[i]];
    const ShardingRef here = before ? before : made_before_views(draft, at.inputs[i]);
    if (!here) continue;
    const Strategy strategy = project(op, i, here);
    const auto placed = cuts_composite(op, strategy) ? place(op, strategy) : std::nullopt;
    for (size_t r = 0; placed && r < placed->outputs.size(); ++r) carried[at.output + r] = placed->outputs[r];
  }
}

// None where all of them take next to no time.
std::optional<std::vector<bool>> gathered_composites(const Draft& draft, const Topology& topology) {
  std::vector<bool> nodes(draft.graph.nodes.size());
  std::vector<ShardingRef> carried(draft.graph.values.size());
  int64_t all = 0;
  for (NodeId node = 0; node < nodes.size(); ++node) {
    const int64_t ns = gathering_ns(draft, node, topology);
    nodes[node] = ns > 0 || follows(draft, node, carried);
    if (nodes[node]) carry(draft, node, carried);
    all += ns;
  }
  if (static_cast<double>(all) <= kLimits.gathered_share * static_cast<double>(draft.decisions->moving_ns))
    return std::nullopt;
  return nodes;
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

void try_expanded(Draft& draft, const CompileOptions& options) {
  if (!draft.graph.mesh) return;
  search(draft, options);
  const auto nodes = gathered_composites(draft, options.topology);
  if (!nodes) return;
  Graph graph = draft.graph;
  expand(graph, *nodes);
  drop_dead(graph);
  keep_cheaper(draft, propagated(std::move(graph), options), options);
}

}  // namespace spmdx
