// SPDX-License-Identifier: Apache-2.0
// Flows: an axis is tried on each dim of a product that passes, on each dim of a sum that it makes whole, and on moved
// outputs.
#include "passes/search/flows.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "graph/places.h"
#include "passes/settings/limits.h"

namespace spmdx {

// The largest axis first, in an order that does not depend on how a mesh is written; without one that holds stages.
std::vector<SubAxisSet> Flows::axes() const {
  std::vector<size_t> order(graph_.mesh->axes().size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Axis &one = graph_.mesh->axes()[a], &other = graph_.mesh->axes()[b];
    return std::tie(other.size, one.name) < std::tie(one.size, other.name);
  });
  const SubAxisSet stages = stage_sub_axes(graph_);
  std::vector<SubAxisSet> found;
  for (const size_t axis : order) {
    const SubAxisSet sub_axes = sub_axis_set(graph_.mesh->sub_axes_of_axis(static_cast<int>(axis)));
    if (sub_axes & ~stages) found.push_back(sub_axes);
  }
  return found;
}

bool Flows::run() {
  bool better = false;
  for (const SubAxisSet sub_axes : axes()) {
    better |= try_products(sub_axes, Through::unused);
    better |= try_sums(sub_axes);
    better |= try_outputs(sub_axes);
    better |= try_products(sub_axes, Through::all);
  }
  return better;
}

// The largest first.
std::vector<NodeId> Flows::products() const {
  std::vector<NodeId> nodes;
  for (NodeId node = 0; node < graph_.nodes.size(); ++node)
    if (assignment_.context(node).rule->product) nodes.push_back(node);
  const auto ns = [&](NodeId node) { return assignment_.times(node) * assignment_.choice(node).time.weighted_ns; };
  std::stable_sort(nodes.begin(), nodes.end(), [&](NodeId a, NodeId b) { return ns(a) > ns(b); });
  return nodes;
}

bool Flows::try_products(SubAxisSet axis, Through through) {
  bool better = false;
  for (const NodeId node : products()) {
    const SubAxisSet sub_axes = through == Through::unused ? axis & assignment_.unused(node) : axis;
    if (sub_axes) better |= try_product({sub_axes, through}, node);
  }
  return better;
}

bool Flows::try_product(const Flow& flow, NodeId node) {
  const OpContext op = assignment_.context(node);
  uint64_t like = hash_combine(hash_combine(op.call->hash, flow.sub_axes), static_cast<uint64_t>(flow.through));
  for (const ShardingRef& sharding : assignment_.choice(node).placement.inputs)
    like = hash_combine(like, reinterpret_cast<uintptr_t>(sharding.get()));
  bool better = false;
  for (size_t t = 0; t < op.num_tensors(); ++t) {
    const TensorFactors& factors = op.factors(t);
    for (size_t d = 0; d < factors.size(); ++d) {
      if (factors[d].empty() || op.rule->factors[factors[d][0]].kind != FactorKind::pass) continue;
      const ValueId value = assignment_.value(node, t);
      const ShardingRef layout = runner_.cut(flow.sub_axes, value, d);
      if (layout && !runner_.has_been(flow, value, layout))
        better |= attempt(flow, {{node, t, layout}}, hash_combine(like, factors[d][0]));
    }
  }
  return better;
}

// Partial values that some reader wants whole, the most expensive first.
std::vector<ValueId> Flows::sums(SubAxisSet axis) const {
  std::vector<ValueId> values;
  for (ValueId value = 0; value < graph_.values.size(); ++value)
    if (assignment_.moves_ns(value) > 0 && (assignment_.produced(value)->partial & axis) == axis)
      values.push_back(value);
  std::stable_sort(values.begin(), values.end(),
                   [&](ValueId a, ValueId b) { return assignment_.moves_ns(a) > assignment_.moves_ns(b); });
  return values;
}

bool Flows::try_sums(SubAxisSet axis) {
  bool better = false;
  for (const ValueId sum : sums(axis)) better |= try_sum({axis, Through::unused}, sum);
  return better;
}

bool Flows::try_sum(const Flow& flow, ValueId sum) {
  const NodeId producer = graph_.values[sum].producer;
  uint64_t like = hash_combine(flow.sub_axes, reinterpret_cast<uintptr_t>(assignment_.produced(sum).get()));
  like = hash_combine(like, assignment_.readers_hash(sum));
  bool better = false;
  for (size_t d = 0; d < graph_.values[sum].type.shape.size(); ++d) {
    const ShardingRef layout = runner_.cut(flow.sub_axes, sum, d);
    if (!layout || runner_.has_been(flow, sum, layout)) continue;
    Steps steps;
    runner_.tell(sum, layout, producer, steps);
    better |= attempt(flow, std::move(steps), hash_combine(like, d));
  }
  return better;
}

// What leaves the step in another layout than it is made in, as new values of parameters do: all ops before it follow.
bool Flows::try_outputs(SubAxisSet axis) {
  bool better = false;
  const Flow flow{axis, Through::other_ops};
  for (const Output& output : graph_.outputs) {
    if (assignment_.moves_ns(output.value) == 0) continue;
    const ShardingRef layout = runner_.only(axis, graph_.values[output.value].sharding, output.value);
    const NodeId producer = graph_.values[output.value].producer;
    if (!layout || producer == kNone || runner_.has_been(flow, output.value, layout)) continue;
    Steps steps;
    runner_.tell(output.value, layout, kNone, steps);
    const uint64_t made = reinterpret_cast<uintptr_t>(assignment_.produced(output.value).get());
    const uint64_t like = hash_combine(hash_combine(graph_.nodes[producer].call->hash, axis), made);
    better |= attempt(flow, std::move(steps), like);
  }
  return better;
}

// Whether the total has fallen enough since then. What leaves the step is moved at its end, when there is nothing left
// to do meanwhile.
bool Flows::pays(const Before& since) const {
  const int64_t more = std::max<int64_t>(0, assignment_.moved_values() - since.moved_values);
  const int64_t saved = chain_.starts_saved(since.chain) + kLimits.starts_a_flow_pays * assignment_.start_ns() * more;
  return assignment_.total() + saved < since.chain.total && assignment_.unweighted() + saved < since.chain.unweighted &&
         (assignment_.moves_of_outputs_ns() <= since.outputs ||
          assignment_.moves_and_products() < since.chain.moves_and_products);
}

// Of what the flow changed, as many nodes as have the least total: first those that follow its source, then those
// before it.
bool Flows::attempt_part(const Before& since, NodeId source, std::map<NodeId, ChoiceRef> changes) {
  const auto first = changes.lower_bound(source);
  std::vector<NodeId> order;
  for (auto at = first; at != changes.end(); ++at) order.push_back(at->first);
  for (auto at = std::make_reverse_iterator(first); at != changes.rend(); ++at) order.push_back(at->first);
  size_t best = 0, mark = assignment_.mark();
  int64_t least = assignment_.total();
  for (size_t i = 0; i < order.size(); ++i) {
    assignment_.decide(order[i], changes.at(order[i]));
    if (assignment_.total() >= least) continue;
    least = assignment_.total();
    best = i + 1;
    mark = assignment_.mark();
  }
  assignment_.undo(mark);
  if (best == 0 || best == order.size()) return chain_.keep(since.chain, false);
  chain_.settle({order.begin(), order.begin() + static_cast<long>(best)});
  return chain_.keep(since.chain, pays(since));
}

bool Flows::attempt(const Flow& flow, Steps steps, uint64_t like) {
  int& failures = failures_[like];
  if (failures >= kLimits.failures) return false;
  const Before since{chain_.before(), assignment_.moves_of_outputs_ns(), assignment_.moved_values()};
  const NodeId source = steps.empty() ? 0 : steps.front().node;
  const std::set<NodeId> changed = runner_.run(flow, std::move(steps));
  if (changed.empty()) return false;
  std::map<NodeId, ChoiceRef> changes;
  for (const NodeId node : changed) changes[node] = assignment_.choice_ref(node);
  chain_.settle(changed);
  const bool better = chain_.keep(since.chain, pays(since)) || attempt_part(since, source, std::move(changes));
  failures = better ? 0 : failures + 1;
  return better;
}

}  // namespace spmdx
