// SPDX-License-Identifier: Apache-2.0
// Expand: a composite op becomes the ops that its rule gives for it.
#include "passes/rewrites/expand.h"

#include "base/error.h"
#include "graph/rewrite.h"
#include "rules/build/builder.h"
#include "rules/lookup.h"

namespace spmdx {
namespace {

// Stands for a result that the expansion does not make: only dead code may use it.
ValueId absent(Builder& builder, const TensorType& type) {
  return builder.emit("aten.full", {type.shape, 0.0, type.dtype, {}, {}, {}}, {}, {type});
}

void expand_node(Rewrite& rewrite, const Node& node) {
  Builder builder(rewrite.to(), node.source);
  const OpRuleRef rule = rule_for(node.call);
  const size_t first = rewrite.to().nodes.size();
  const std::vector<ValueId> results = rule->expand(builder, rewrite.mapped(node));
  for (size_t i = first; i < rewrite.to().nodes.size(); ++i) {
    rewrite.to().nodes[i].starts_of = node.starts_of;
    rewrite.to().nodes[i].recorded = node.recorded;
  }
  internal_check(results.size() == node.call->outputs.size(),
                 "wrong number of results from the expansion of " + node.call->op);
  for (size_t i = 0; i < results.size(); ++i) {
    const TensorType& type = node.call->outputs[i];
    const ValueId value = results[i] == kNone ? absent(builder, type) : results[i];
    internal_check(builder.type(value).shape == type.shape && builder.type(value).dtype == type.dtype,
                   "the expansion of " + node.call->op + " gives " + str(builder.type(value)) + " for " + str(type));
    rewrite.map(node.output + static_cast<ValueId>(i), value);
  }
}

}  // namespace

void expand(Graph& graph, const std::vector<bool>& nodes) {
  Rewrite rewrite(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (nodes[i])
      expand_node(rewrite, graph.nodes[i]);
    else
      rewrite.keep(graph.nodes[i]);
  }
  graph = rewrite.finish();
}

}  // namespace spmdx
