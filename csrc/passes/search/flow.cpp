// SPDX-License-Identifier: Apache-2.0
// Flow: from a node to its tensors, and from each of them to the other nodes that have it.
#include "passes/search/flow.h"

#include <algorithm>

namespace spmdx {

ShardingRef FlowRunner::only(SubAxisSet sub_axes, const ShardingRef& sharding, ValueId value) const {
  Sharding rest{sharding->mesh, sharding->dims, 0, Reduction::none};
  for (DimSharding& dim : rest.dims) {
    dim.sub_axes.drop_if([&](SubAxisId sub_axis) { return !(sub_axes >> sub_axis & 1); });
    dim.tile = 1;
  }
  return rest.dim_sub_axes() ? intern(std::move(rest), graph_.values[value].type.shape) : nullptr;
}

ShardingRef FlowRunner::cut(SubAxisSet sub_axes, ValueId value, size_t dim) const {
  const Shape& shape = graph_.values[value].type.shape;
  Sharding layout{graph_.mesh, std::vector<DimSharding>(shape.size()), 0, Reduction::none};
  layout.dims[dim].sub_axes = sub_axis_list(sub_axes);
  if (!is_legal(*graph_.mesh, layout.dims[dim], shape[dim])) return nullptr;
  return intern(std::move(layout), shape);
}

bool FlowRunner::has_been(const Flow& flow, ValueId value, const ShardingRef& layout) const {
  return been_.contains({flow.sub_axes, flow.through, value, layout.get()});
}

void FlowRunner::tell(ValueId value, const ShardingRef& layout, NodeId from, Steps& steps) const {
  const NodeId producer = graph_.values[value].producer;
  if (producer != kNone && producer != from)
    steps.push_back({producer, graph_.nodes[producer].inputs.size() + value - graph_.nodes[producer].output, layout});
  NodeId last = from;
  for (const auto [user, operand] : assignment_.reads(value)) {
    if (user == from || user == last) continue;
    steps.push_back({user, operand, layout});
    last = user;
  }
}

// Results that outlive the step stay where they are wanted: how they lie is not for one step to decide. A product is
// worth its moves.
bool FlowRunner::keeps_what_stays(NodeId node, const Choice& choice) const {
  if (assignment_.context(node).rule->product) return true;
  for (size_t r = 0; r < choice.placement.outputs.size(); ++r) {
    const ValueId value = graph_.nodes[node].output + static_cast<ValueId>(r);
    if (assignment_.constrained(value) && choice.placement.outputs[r] != graph_.values[value].sharding) return false;
  }
  return true;
}

// What the node does with its tensor cut as the step says; null where it cannot, or does so already.
ChoiceRef FlowRunner::choice_with(const Flow& flow, const Step& step) const {
  const OpContext op = assignment_.context(step.node);
  const Strategy& now = assignment_.choice(step.node).strategy;
  if (flow.through == Through::unused && (now.used() & flow.sub_axes)) return nullptr;
  if (flow.through == Through::other_ops && op.rule->product) return nullptr;
  Strategy strategy = without(now, flow.sub_axes);
  const std::vector<DimSharding> cuts = cuts_of(op, step.tensor, step.layout);
  SubAxisSet put = 0;
  for (size_t f = 0; f < cuts.size(); ++f) {
    const Factor& factor = op.rule->factors[f];
    if (cuts[f].empty() || !may_cut(op, factor)) continue;
    DimSharding& mine = strategy.cuts[f];
    if (mine.empty()) mine.tile = cuts[f].tile;
    mine.sub_axes.append(cuts[f].sub_axes);
    if (!is_legal(*op.mesh, mine, factor.size)) return nullptr;
    put |= sub_axis_set(cuts[f].sub_axes);
  }
  return put == flow.sub_axes && strategy != now ? assignment_.choice_with(step.node, std::move(strategy)) : nullptr;
}

std::set<NodeId> FlowRunner::run(const Flow& flow, Steps steps) {
  std::set<NodeId> changed;
  for (; !steps.empty(); steps.pop_front()) {
    const Step step = steps.front();
    if (changed.contains(step.node)) continue;
    const ChoiceRef choice = choice_with(flow, step);
    if (!choice || !keeps_what_stays(step.node, *choice)) continue;
    assignment_.decide(step.node, choice);
    changed.insert(step.node);
    for (size_t t = 0; t < assignment_.context(step.node).num_tensors(); ++t) {
      const ValueId value = assignment_.value(step.node, t);
      const ShardingRef layout = only(flow.sub_axes, choice->placement.of(t), value);
      if (layout && been_.insert({flow.sub_axes, flow.through, value, layout.get()}).second)
        tell(value, layout, step.node, steps);
    }
  }
  return changed;
}

}  // namespace spmdx
