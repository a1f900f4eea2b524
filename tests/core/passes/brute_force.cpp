// SPDX-License-Identifier: Apache-2.0
#include "passes/brute_force.h"
#include "rules/lookup.h"

#include <algorithm>
#include <map>

#include "passes/search/assignment.h"

namespace spmdx::test {
namespace {

// What one axis does to a node.
struct Share {
  int factor = -1;
  uint64_t partial_operands = 0;  // operands that stay partial sums
};

std::vector<Share> shares_of(const OpContext& op) {
  std::vector<Share> shares{{}};
  for (size_t f = 0; f < op.rule->factors.size(); ++f)
    if (may_cut(op, op.rule->factors[f])) shares.push_back({static_cast<int>(f), 0});
  const Linearity linearity = op.rule->linearity;
  if (linearity == Linearity::none || linearity == Linearity::monotone) return shares;
  uint64_t all = 0;
  for (size_t i = 0; i < op.rule->inputs.size(); ++i) {
    if (!takes_part(*op.rule, i)) continue;
    if (linearity == Linearity::each) shares.push_back({-1, uint64_t{1} << i});
    all |= uint64_t{1} << i;
  }
  if (linearity != Linearity::each && all) shares.push_back({-1, all});
  return shares;
}

// The strategy in which these axes, major → minor, have these shares. False where two of them keep different operands
// partial.
bool give(const OpContext& op, const std::vector<int>& axes, const std::vector<Share>& shares, Strategy& strategy) {
  strategy.cuts.assign(op.rule->factors.size(), {});
  for (size_t i = 0; i < axes.size(); ++i) {
    const SubAxisList sub_axes = op.mesh->sub_axes_of_axis(axes[i]);
    if (shares[i].factor >= 0) {
      SubAxisList& cut = strategy.cuts[static_cast<size_t>(shares[i].factor)].sub_axes;
      cut.append(sub_axes);
    } else if (shares[i].partial_operands) {
      if (strategy.partial && strategy.partial_operands != shares[i].partial_operands) return false;
      strategy.partial |= sub_axis_set(sub_axes);
      strategy.reduction = Reduction::sum;
      strategy.partial_operands = shares[i].partial_operands;
    }
  }
  return true;
}

// Calls visit(shares) for every choice of one share for each of `count` axes.
template <class Visit>
void each_choice(const std::vector<Share>& shares, size_t count, std::vector<Share>& chosen, const Visit& visit) {
  if (chosen.size() == count) return visit();
  for (const Share& share : shares) {
    chosen.push_back(share);
    each_choice(shares, count, chosen, visit);
    chosen.pop_back();
  }
}

class Search {
 public:
  Search(const Graph& graph, const CompileOptions& options)
      : graph_(graph), options_(options), users_(users(graph)), chosen_(graph.nodes.size()) {
    for (const Node& node : graph.nodes) ways_.push_back(ways_of(graph, node, options));
    closed_by_.resize(graph.nodes.size());
    for (ValueId value = 0; value < graph.values.size(); ++value) {
      const NodeId producer = graph.values[value].producer;
      const NodeId last = users_[value].empty() ? producer : users_[value].back();
      if (last == kNone) continue;
      closed_by_[last].push_back(value);
    }
  }

  Optimum run() {
    best_.total_ns = INT64_MAX;
    extend(0, 0);
    return best_;
  }

 private:
  // Decides the nodes from `node` on; `so_far` is what those before it take, with the values that nobody else reads.
  void extend(size_t node, int64_t so_far) {
    if (so_far >= best_.total_ns) return;
    if (node == graph_.nodes.size()) {
      ++best_.tried;
      best_.total_ns = so_far;
      return;
    }
    for (const Way& way : ways_[node]) {
      chosen_[node] = &way;
      int64_t now = so_far + way.compute_ns;
      for (ValueId value : closed_by_[node]) now += moves_ns(value);
      extend(node + 1, now);
    }
  }

  ShardingRef made(ValueId value) const {
    const NodeId producer = graph_.values[value].producer;
    if (producer != kNone) return chosen_[producer]->placement.outputs[value - graph_.nodes[producer].output];
    for (const Input& input : graph_.inputs)
      if (input.value == value && input.physical) return input.physical;
    return replicated(graph_.mesh, graph_.values[value].type.shape.size());
  }

  int64_t moves_ns(ValueId value) {
    int64_t total = 0;
    std::vector<ShardingRef> there{made(value)};
    const auto want = [&](ShardingRef wanted) {
      const Step* nearest = nullptr;
      for (const ShardingRef& from : there) {
        if (from == wanted) return;
        const Step& way = step(value, from, wanted);
        if (!nearest || way.ns < nearest->ns) nearest = &way;
      }
      total += nearest->ns;
      there.insert(there.end(), nearest->on_the_way.begin(), nearest->on_the_way.end());
    };
    for (const Input& input : graph_.inputs)
      if (input.value == value && input.annotation) {
        want(input.annotation);
        there = {input.annotation};  // all readers start from what the user wrote
      }
    for (NodeId user : users_[value])
      for (size_t i = 0; i < graph_.nodes[user].inputs.size(); ++i)
        if (graph_.nodes[user].inputs[i] == value) want(chosen_[user]->placement.inputs[i]);
    for (const Output& output : graph_.outputs)
      if (output.value == value) want(wanted_of(graph_, output, made(value)));
    return total;
  }

  struct Step {
    int64_t ns = 0;
    std::vector<ShardingRef> on_the_way;
  };

  const Step& step(ValueId value, ShardingRef from, ShardingRef to) {
    const auto [entry, fresh] = steps_.try_emplace({value, from.get(), to.get()});
    if (fresh) {
      const TensorType& type = graph_.values[value].type;
      const ReshardPlanRef plan = plan_reshard(type.dtype, type.shape, from, to, options_.topology);
      entry->second.ns = plan->cost_ns;
      for (const Move& move : plan->moves) entry->second.on_the_way.push_back(move.to);
    }
    return entry->second;
  }

  const Graph& graph_;
  const CompileOptions& options_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<std::vector<Way>> ways_;
  std::vector<std::vector<ValueId>> closed_by_;  // by node: values of which it is the last to be decided
  std::vector<const Way*> chosen_;
  std::map<std::tuple<ValueId, const Sharding*, const Sharding*>, Step> steps_;
  Optimum best_;
};

}  // namespace

std::vector<Way> ways_of(const Graph& graph, const Node& node, const CompileOptions& options) {
  const OpRuleRef rule = rule_for(node.call);
  const OpContext op{graph.mesh, node.call.get(), rule.get(), false};
  std::vector<int> axes;
  for (size_t axis = 0; axis < graph.mesh->axes().size(); ++axis) axes.push_back(static_cast<int>(axis));
  std::vector<Way> ways;
  std::vector<Share> chosen;
  do {
    each_choice(shares_of(op), axes.size(), chosen, [&] {
      Strategy strategy;
      if (!give(op, axes, chosen, strategy)) return;
      auto placement = place(op, strategy);
      if (!placement) return;
      const int64_t ns = time_of(op, strategy, options.topology).weighted_ns;
      const auto same = std::find_if(ways.begin(), ways.end(), [&](const Way& way) {
        return way.placement.inputs == placement->inputs && way.placement.outputs == placement->outputs;
      });
      if (same == ways.end())
        ways.push_back({std::move(*placement), ns});
      else
        same->compute_ns = std::min(same->compute_ns, ns);
    });
  } while (std::next_permutation(axes.begin(), axes.end()));
  return ways;
}

Optimum brute_force(const Graph& graph, const CompileOptions& options) { return Search(graph, options).run(); }

}  // namespace spmdx::test
