// SPDX-License-Identifier: Apache-2.0
// Partition: every node as the search has decided, and the collectives that its operands need.
#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "graph/rewrite.h"
#include "passes/layouts.h"
#include "passes/passes.h"
#include "passes/search/assignment.h"
#include "passes/settings/limits.h"
#include "sharding/notation.h"

namespace spmdx {
namespace {

// In the order in which nodes make them, so that the moves at the end do not depend on the order of the outputs.
std::vector<size_t> by_value(const std::vector<Output>& outputs) {
  std::vector<size_t> order(outputs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return outputs[a].value < outputs[b].value; });
  return order;
}

constexpr NodeId kStays = kLimits.nodes_a_copy_stays;

class Partition {
 public:
  Partition(const Graph& graph, const Decisions& decisions, const CompileOptions& options)
      : graph_(graph), rewrite_(graph), layouts_(graph, rewrite_, options.topology), decisions_(decisions) {
    for (const Input& input : graph.inputs) inputs_.try_emplace(input.value, &input);
    for (const Constraint& constraint : graph.constraints) constraints_[constraint.value].push_back(constraint.source);
  }

  Graph run() {
    for (size_t i : inputs_by_use(graph_)) {
      const Input& input = graph_.inputs[i];
      const ValueId made = rewrite_.at(input.value);
      ShardingRef layout = everywhere(input.physical);
      if (!layout) layout = replicated(graph_.mesh, graph_.values[input.value].type.shape.size());
      rewrite_.to().values[made].sharding = layout;
      layouts_.add(input.value, layout, made);
      if (comes_from_another_mesh(graph_, input))
        pin(input.value, graph_.values[input.value].sharding, input.source, 0,
            describe(input.value) + " from another mesh");
      if (input.annotation)
        pin(input.value, everywhere(input.annotation), input.source, 0, "annotation of " + describe(input.value));
    }
    for (NodeId node = 0; node < graph_.nodes.size(); ++node) visit(node);
    std::vector<ValueId> kept(graph_.outputs.size());  // one value may be two outputs, in two layouts
    for (size_t i : by_value(graph_.outputs)) kept[i] = finish_output(graph_.outputs[i]);
    return rewrite_.finish(kept);
  }

 private:
  void visit(NodeId id) {
    const Node& node = graph_.nodes[id];
    const Placement& placement = decisions_.choices[id]->placement;
    std::vector<ValueId> operands;
    operands.reserve(node.inputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId value = node.inputs[i];
      const ShardingRef& wanted = placement.inputs[i];
      if (decisions_.transient[value] && id > kStays) layouts_.forget(value, id - kStays);
      operands.push_back(
          layouts_.get(value, wanted, id, node.source, [&] { return cause(value, wanted) + " for " + node.call->op; }));
    }
    const ValueId output = rewrite_.to().add_node(node.call, std::move(operands), node.source, node.param);
    rewrite_.to().nodes.back().starts_of = node.starts_of;
    rewrite_.to().nodes.back().recorded = node.recorded;
    for (size_t i = 0; i < placement.outputs.size(); ++i) {
      const ValueId old = node.output + static_cast<ValueId>(i);
      const ValueId made = output + static_cast<ValueId>(i);
      rewrite_.map(old, made);
      rewrite_.to().values[made].sharding = placement.outputs[i];
      rewrite_.to().values[made].why = graph_.values[old].why;
      layouts_.add(old, placement.outputs[i], made);
    }
    pin_results(node, id);
  }

  // A value the user annotated is brought into that layout where it is made, so that all uses see it.
  void pin(ValueId value, const ShardingRef& wanted, SourceId source, NodeId at, const std::string& reason) {
    const ValueId moved = layouts_.get(value, wanted, at, source, [&] { return reason; });
    layouts_.only(value, wanted, moved);
  }

  void pin_results(const Node& node, NodeId id) {
    for (size_t i = 0; i < node.call->outputs.size(); ++i) {
      const auto found = constraints_.find(node.output + static_cast<ValueId>(i));
      if (found == constraints_.end()) continue;
      for (const SourceId source : found->second)
        pin(found->first, graph_.values[found->first].sharding, source, id,
            "annotation of the result of " + node.call->op);
    }
  }

  // "w f32[64@data, 8] as f32[64, 8]"
  std::string cause(ValueId value, const ShardingRef& wanted) const {
    const TensorType& type = graph_.values[value].type;
    return describe(value) + " " + str(type, layouts_.produced(value)) + " as " + str(type, wanted);
  }

  std::string describe(ValueId value) const {
    const Value& entry = graph_.values[value];
    if (entry.producer != kNone) return "result of " + graph_.nodes[entry.producer].call->op;
    const auto input = inputs_.find(value);
    if (input == inputs_.end()) return "a value";
    return input->second->name.empty() ? "an input" : input->second->name;
  }

  ValueId finish_output(const Output& output) {
    const ShardingRef produced = layouts_.produced(output.value);
    const ShardingRef wanted = wanted_of(graph_, output, produced);
    const SourceId source = graph_.values[output.value].producer == kNone
                                ? output.source
                                : graph_.nodes[graph_.values[output.value].producer].source;
    return layouts_.get(output.value, wanted, static_cast<NodeId>(graph_.nodes.size()), source,
                        [&] { return cause(output.value, wanted) + ", kept after the step"; });
  }

  const Graph& graph_;
  Rewrite rewrite_;
  Layouts layouts_;
  const Decisions& decisions_;
  std::map<ValueId, std::vector<SourceId>> constraints_;
  std::unordered_map<ValueId, const Input*> inputs_;
};

}  // namespace

void partition(Draft& draft, const CompileOptions& options) {
  if (!draft.graph.mesh) return;
  for (const Value& value : draft.graph.values)
    if (!value.sharding)
      throw ShardingError("partition: a value of " + str(value.type) +
                          " has no sharding yet. Expected a graph that was propagated. Run the pass propagate first.");
  search(draft, options);  // does nothing after the pass search; partition may also be run without it
  draft.graph = Partition(draft.graph, *draft.decisions, options).run();
  draft.decisions.reset();  // they were for the old graph
}

}  // namespace spmdx
