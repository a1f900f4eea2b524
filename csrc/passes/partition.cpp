// SPDX-License-Identifier: Apache-2.0
// Partition: a strategy for every node by cost, and the collectives its operands need.
#include <algorithm>

#include "base/error.h"
#include "passes/layouts.h"
#include "passes/passes.h"
#include "passes/strategy.h"

namespace spmdx {
namespace {

struct Choice {
  Strategy strategy;
  Placement placement;
  int64_t cost = 0;
};

class Partition {
 public:
  Partition(const Graph& graph, const CompileOptions& options)
      : graph_(graph),
        options_(options),
        rewrite_(graph),
        layouts_(graph, rewrite_, options.topology),
        users_(users(graph)),
        pinned_(graph.values.size(), false) {
    for (const Output& output : graph.outputs) pinned_[output.value] = true;
    for (const Constraint& constraint : graph.constraints) pinned_[constraint.value] = true;
  }

  Graph run() {
    for (const Input& input : graph_.inputs) {
      const ValueId made = rewrite_.at(input.value);
      ShardingRef layout = input.physical;
      if (!layout) layout = replicated(graph_.mesh, graph_.values[input.value].type.shape.size());
      rewrite_.to().values[made].sharding = layout;
      layouts_.add(input.value, layout, made);
    }
    for (const Node& node : graph_.nodes) visit(node);
    std::vector<ValueId> kept;  // two outputs may be one value in two layouts
    for (const Output& output : graph_.outputs) kept.push_back(finish_output(output));
    Graph result = rewrite_.finish();
    for (size_t i = 0; i < kept.size(); ++i) result.outputs[i].value = kept[i];
    return result;
  }

 private:
  OpContext context(const Node& node, const OpRule& rule) const { return {graph_.mesh, node.call.get(), &rule, false}; }

  static bool takes_part(const OpRule& rule, size_t operand) {
    return operand >= 64 || (rule.linear_inputs >> operand & 1);
  }

  // A partial may go through this use without growing.
  bool passes_on(const Node& user, ValueId value) const {
    const OpRuleRef rule = rule_for(user.call);
    if (rule->linearity == Linearity::none) return false;
    int64_t out = 0;
    for (const TensorType& type : user.call->outputs) out += type.bytes();
    for (size_t i = 0; i < user.inputs.size(); ++i)
      if (user.inputs[i] == value && (!takes_part(*rule, i) || user.call->inputs[i].bytes() < out)) return false;
    return true;
  }

  // Whether it pays to leave `value` partial: nobody else needs its sum.
  bool may_stay_partial(ValueId value) const {
    if (pinned_[value]) return false;
    if (users_[value].size() <= 1) return true;
    return std::all_of(users_[value].begin(), users_[value].end(),
                       [&](NodeId user) { return passes_on(graph_.nodes[user], value); });
  }

  // The atoms over which this node can be left partial, with the reduction; none where its linearity does not allow.
  std::pair<AtomSet, Reduction> partial_of(const Node& node, const OpRule& rule) const {
    std::pair<AtomSet, Reduction> found{0, Reduction::none};
    if (rule.linearity == Linearity::none) return found;
    size_t with = 0, taking_part = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ShardingRef native = layouts_.native(node.inputs[i]);
      if (!takes_part(rule, i)) continue;
      ++taking_part;
      if (!native->partial) continue;
      if (!may_stay_partial(node.inputs[i]) || !passes_on(node, node.inputs[i])) return {0, Reduction::none};
      if (with++ && found != std::pair{native->partial, native->reduction}) return {0, Reduction::none};
      found = {native->partial, native->reduction};
    }
    if (!with) return found;
    const bool sum = found.second == Reduction::sum;
    const bool extreme = found.second == Reduction::max || found.second == Reduction::min;
    const bool allowed = rule.linearity == Linearity::movement ? with == taking_part
                         : rule.linearity == Linearity::joint  ? sum && with == taking_part
                         : rule.linearity == Linearity::each   ? sum && with == 1
                                                               : extreme && with == 1 && taking_part == 1;
    return allowed ? found : std::pair<AtomSet, Reduction>{0, Reduction::none};
  }

  std::vector<std::vector<ShardingRef>> hints(const Node& node) const {
    std::vector<std::vector<ShardingRef>> all;
    for (ValueId value : node.inputs) {
      std::vector<ShardingRef> mine;
      for (const Layout& layout : layouts_.of(value)) mine.push_back(layout.sharding);
      mine.push_back(graph_.values[value].sharding);
      all.push_back(std::move(mine));
    }
    for (size_t i = 0; i < node.call->outputs.size(); ++i) all.push_back({graph_.values[node.output + i].sharding});
    return all;
  }

  int64_t cost(const Node& node, const OpContext& op, const Strategy& strategy, const Placement& placement) const {
    int64_t total = compute_ns(op, strategy, options_.topology);
    for (size_t i = 0; i < node.inputs.size(); ++i) total += layouts_.cost(node.inputs[i], placement.inputs[i]);
    for (size_t i = 0; i < placement.outputs.size(); ++i) {
      const TensorType& type = node.call->outputs[i];
      const ValueId value = node.output + static_cast<ValueId>(i);
      if (users_[value].empty() && !pinned_[value]) continue;
      const ShardingRef made = placement.outputs[i], wanted = graph_.values[value].sharding;
      const int64_t move = plan_reshard(type.dtype, type.shape, made, wanted, options_.topology).cost_ns;
      // Ops that follow would take the layout on, and each of their results would have to move as well.
      total += made->partial ? move : 2 * move;
    }
    return total;
  }

  // `each`: only the operand that is partial already is taken partial.
  void narrow_partial(const Node& node, const OpContext& op, Placement& placement) const {
    if (op.rule->linearity != Linearity::each) return;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (!layouts_.native(node.inputs[i])->partial)
        placement.inputs[i] = without_partial(placement.inputs[i], op.type(i).shape);
  }

  Choice choose(const Node& node, const OpContext& op) const {
    std::vector<Strategy> all = candidates(op, hints(node));
    const auto [atoms, reduction] = partial_of(node, *op.rule);
    if (atoms) {
      std::vector<Strategy> delayed;
      for (Strategy strategy : all) {
        if (strategy.used() & atoms) continue;
        strategy.partial = atoms;
        strategy.reduction = reduction;
        delayed.push_back(std::move(strategy));
      }
      all.insert(all.begin(), delayed.begin(), delayed.end());  // first: wins where costs are equal
    }
    std::optional<Choice> best;
    for (Strategy& strategy : all) {
      auto placement = place(op, strategy);
      if (!placement) continue;
      narrow_partial(node, op, *placement);
      const int64_t now = cost(node, op, strategy, *placement);
      if (!best || now < best->cost) best = Choice{std::move(strategy), std::move(*placement), now};
    }
    internal_check(best.has_value(), "no strategy for " + node.call->op);
    return std::move(*best);
  }

  void visit(const Node& node) {
    const OpRuleRef rule = rule_for(node.call);
    const OpContext op = context(node, *rule);
    const Choice choice = choose(node, op);
    Node copy = node;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      copy.inputs[i] = layouts_.get(node.inputs[i], choice.placement.inputs[i], node.source,
                                    cause(node.inputs[i], choice.placement.inputs[i], node));
    const ValueId output = rewrite_.to().add_node(copy.call, copy.inputs, node.source, node.param);
    for (size_t i = 0; i < choice.placement.outputs.size(); ++i) {
      const ValueId old = node.output + static_cast<ValueId>(i);
      const ValueId made = output + static_cast<ValueId>(i);
      rewrite_.map(old, made);
      rewrite_.to().values[made].sharding = choice.placement.outputs[i];
      rewrite_.to().values[made].why = graph_.values[old].why;
      layouts_.add(old, choice.placement.outputs[i], made);
    }
    pin(node);
  }

  // A value the user constrained is brought into that layout where it is made, so that all uses see it.
  void pin(const Node& node) {
    for (const Constraint& constraint : graph_.constraints) {
      if (constraint.value < node.output || constraint.value >= node.output + node.call->outputs.size()) continue;
      layouts_.get(constraint.value, graph_.values[constraint.value].sharding, constraint.source,
                   "annotation of the result of " + node.call->op);
    }
  }

  // "w f32[64@data, 8] as f32[64, 8] for aten.mm"
  std::string cause(ValueId value, ShardingRef wanted, const Node& user) const {
    const TensorType& type = graph_.values[value].type;
    return describe(value) + " " + str(type, layouts_.native(value)) + " as " + str(type, wanted) + " for " +
           user.call->op;
  }

  std::string describe(ValueId value) const {
    const Value& entry = graph_.values[value];
    if (entry.producer != kNone) return "result of " + graph_.nodes[entry.producer].call->op;
    for (const Input& input : graph_.inputs)
      if (input.value == value) return input.name.empty() ? "an input" : input.name;
    return "a value";
  }

  ValueId finish_output(const Output& output) {
    ShardingRef wanted = graph_.values[output.value].sharding;
    const ShardingRef native = layouts_.native(output.value);
    if (output.annotation)
      wanted = output.annotation;
    else if (output.tied == kNone && !native->partial)
      wanted = native;
    const TensorType& type = graph_.values[output.value].type;
    const SourceId source = graph_.values[output.value].producer == kNone
                                ? output.source
                                : graph_.nodes[graph_.values[output.value].producer].source;
    return layouts_.get(
        output.value, wanted, source,
        describe(output.value) + " " + str(type, native) + " as " + str(type, wanted) + ", kept after the step");
  }

  const Graph& graph_;
  const CompileOptions& options_;
  Rewrite rewrite_;
  Layouts layouts_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> pinned_;
};

}  // namespace

void partition(Graph& graph, const CompileOptions& options) {
  if (!graph.mesh) return;
  graph = Partition(graph, options).run();
}

}  // namespace spmdx
