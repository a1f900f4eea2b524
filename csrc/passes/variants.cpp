// SPDX-License-Identifier: Apache-2.0
// Variants: the same program in another form, which is kept where its plan is cheaper.
#include <algorithm>
#include <optional>

#include "graph/rewrite.h"
#include "passes/passes.h"
#include "passes/precedent/precedent.h"
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

Draft propagated(Graph graph, const CompileOptions& options, Walk& walk) {
  propagate(graph, options, walk);
  expand_composites(graph, options, walk);
  return {std::move(graph)};
}

// The forms that one pass tries, in order: one that makes the plan cheaper is kept, or one that the precedent kept.
class Forms {
 public:
  using Kept = std::vector<bool> Precedent::*;
  Forms(Draft& draft, const CompileOptions& options, Kept kept) : draft_(draft), options_(options), kept_(kept) {}
  ~Forms() {
    if (draft_.follows) draft_.strays |= tried_.size() != before().size();
    if (draft_.precedent) draft_.precedent.get()->*kept_ = std::move(tried_);
  }
  Forms(const Forms&) = delete;
  Forms& operator=(const Forms&) = delete;

  // Whether the precedent kept none, so that there is nothing to try.
  bool none_is_kept() {
    if (!draft_.follows || std::find(before().begin(), before().end(), true) != before().end()) return false;
    tried_ = before();
    return true;
  }

  void keep_cheaper(Graph graph) { tried_.push_back(draft_.follows ? keep_as_before(graph) : keep_if_cheaper(graph)); }

 private:
  const std::vector<bool>& before() const { return draft_.follows->*kept_; }

  void take(Draft other) {
    draft_.graph = std::move(other.graph);
    draft_.decisions = std::move(other.decisions);
  }

  bool keep_as_before(Graph& graph) {
    const bool kept = tried_.size() < before().size() && before()[tried_.size()];
    if (kept) take(propagated(std::move(graph), options_, draft_.walk));
    return kept;
  }

  bool keep_if_cheaper(Graph& graph) {
    Trail* trail = draft_.walk.leaves;
    const size_t so_far = trail ? trail->stretches.size() : 0;
    Draft other = propagated(std::move(graph), options_, draft_.walk);
    const bool cheaper = total_ns(other, options_) < total_ns(draft_, options_);
    if (draft_.precedent) draft_.precedent->costs_asked += (cheaper ? draft_ : other).decisions->effort.costs_asked;
    if (cheaper)
      take(std::move(other));
    else if (trail)
      trail->stretches.resize(so_far);
    return cheaper;
  }

  Draft& draft_;
  const CompileOptions& options_;
  const Kept kept_;
  std::vector<bool> tried_;
};

// Merges are looked for in `graph`, and tried beside what is in the draft.
void try_merges(const Graph& graph, Forms& forms) {
  const std::vector<Merge> merges = blocked_merges(graph);
  for (size_t i = 0; i < merges.size() && i < kLimits.interleaved_dims; ++i)
    if (auto turned = interleave(graph, merges[i])) forms.keep_cheaper(std::move(*turned));
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

// The same, as the precedent found it, which may come from a file; or as the cheapest plan of the draft shows. None
// where that is of no use.
std::optional<std::vector<bool>> composites_to_expand(Draft& draft, const CompileOptions& options) {
  if (draft.follows) {
    std::vector<bool> nodes = draft.follows->composites;
    if (nodes.size() != draft.graph.nodes.size()) return std::nullopt;
    for (NodeId node = 0; node < nodes.size(); ++node)
      nodes[node] = nodes[node] && rule_for(draft.graph.nodes[node].call)->expand;
    return nodes;
  }
  search(draft, options);
  return gathered_composites(draft, options.topology);
}

}  // namespace

void try_interleaved(Draft& draft, const CompileOptions& options) {
  if (!draft.graph.mesh) return;
  Forms forms(draft, options, &Precedent::interleaved);
  if (!forms.none_is_kept()) try_merges(Graph(draft.graph), forms);
}

void try_split_views(Draft& draft, const CompileOptions& options) {
  if (!draft.graph.mesh) return;
  Forms forms(draft, options, &Precedent::split_views);
  if (forms.none_is_kept()) return;
  auto pieces = see_split_views(draft.graph);
  if (!pieces) return;
  propagate(*pieces, options);
  forms.keep_cheaper(*pieces);
  try_merges(*pieces, forms);  // of selects of pieces, which an expansion replaces
}

void try_expanded(Draft& draft, const CompileOptions& options) {
  if (!draft.graph.mesh) return;
  Forms forms(draft, options, &Precedent::expanded);
  if (forms.none_is_kept()) return;
  const auto nodes = composites_to_expand(draft, options);
  if (!nodes) return;
  Graph graph = draft.graph;
  expand(graph, *nodes);
  drop_dead(graph);
  forms.keep_cheaper(std::move(graph));
  if (draft.precedent) draft.precedent->composites = *nodes;
}

}  // namespace spmdx
