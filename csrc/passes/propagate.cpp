// SPDX-License-Identifier: Apache-2.0
// Propagate: a few shardings of the user's lead to a sharding and a provenance for every value.
#include <algorithm>
#include <optional>

#include "passes/passes.h"
#include "passes/settings/limits.h"
#include "passes/strategy/elementwise.h"
#include "passes/strategy/preference.h"
#include "rules/lookup.h"

namespace spmdx {
namespace {

// What is known of the values so far. Layouts of data come first, layouts of state (parameters) after them: the data
// says where work is done, and how a parameter is stored matters only where the data says nothing.
class Propagation {
 public:
  Propagation(Graph& graph, const CompileOptions& options)
      : graph_(graph), preferences_(options.topology), users_(users(graph)) {
    const size_t n = graph.values.size();
    known_.shardings.resize(n);
    known_.fixed.assign(n, false);
    known_.hidden.assign(n, false);
    dirty_.assign(graph.nodes.size(), true);
    for (size_t v = 0; v < n; ++v) {
      Value& value = graph.values[v];
      known_.shardings[v] = value.hint ? value.hint : replicated(graph.mesh, value.type.shape.size());
      value.why = {};
    }
    for (const Node& node : graph.nodes) rules_.push_back(rule_for(node.call));
    link_ties();
  }

  void run() {
    seed_data();
    sweep_until_stable();
    seed_annotated_state();
    sweep_until_stable();
    seed_other_state();
    sweep_until_stable();
    for (size_t v = 0; v < known_.shardings.size(); ++v) graph_.values[v].sharding = known_.shardings[v];
  }

 private:
  // What an optimizer keeps beside a parameter lies as the parameter, also what it makes when it is called first.
  void link_optimizer_state() {
    const std::vector<const Output*> met = becomes_element_by_element(
        graph_, rules_, [](const Output& output) { return output.annotation && output.tied != kNone; });
    for (Output& output : graph_.outputs) {
      const Output* parameter = met[output.value];
      if (output.annotation || !parameter || graph_.values[output.value].producer == kNone) continue;
      if (output.tied == kNone) output.tied = parameter->tied;
      ties_.push_back({parameter->value, output.value});
      known_.hidden[output.value] = true;  // until the parameter's annotation counts
    }
  }

  // An input that an output replaces is state: a parameter, or what an optimizer keeps.
  void link_ties() {
    link_optimizer_state();
    for (const Output& output : graph_.outputs) {
      if (output.tied == kNone) continue;
      Input& input = graph_.inputs[output.tied];
      input.state = true;
      if (graph_.values[input.value].type.shape != graph_.values[output.value].type.shape) continue;
      if (output.value == input.value) continue;
      ties_.push_back({input.value, output.value});
    }
  }

  void set(ValueId value, const ShardingRef& sharding, Provenance why) {
    known_.shardings[value] = sharding;
    graph_.values[value].why = std::move(why);
    for (NodeId user : users_[value]) dirty_[user] = true;
    if (graph_.values[value].producer != kNone) dirty_[graph_.values[value].producer] = true;
  }

  void seed_input(const Input& input) {
    const std::string name = input.name.empty() ? "an input" : input.name;
    if (input.annotation) {
      set(input.value, everywhere(input.annotation), {input.source, "annotation of " + name, nullptr});
      known_.fixed[input.value] = true;
    } else if (input.physical && !comes_from_another_mesh(graph_, input) && !known_.fixed[input.value]) {
      set(input.value, without_partial(everywhere(input.physical), graph_.values[input.value].type.shape),
          {0, "layout of " + name, nullptr});
    }
  }

  void seed_data() {
    for (const Input& input : graph_.inputs) {
      if (!input.state) {
        seed_input(input);
      } else if (input.annotation) {
        known_.fixed[input.value] = known_.hidden[input.value] = true;
      } else if (input.physical && !comes_from_another_mesh(graph_, input) && !input.physical->replicated()) {
        known_.hidden[input.value] = true;  // until seed_other_state; one that is whole says nothing, and hides nothing
      }
    }
    for (const Constraint& constraint : graph_.constraints)
      seed_result(constraint.value, everywhere(constraint.sharding), constraint.source, constraint.state);
    for (const Output& output : graph_.outputs)
      if (output.annotation)
        seed_result(output.value, everywhere(output.annotation), output.source, output.state || output.tied != kNone);
  }

  void seed_result(ValueId value, const ShardingRef& sharding, SourceId source, bool state) {
    if (known_.fixed[value]) return;
    known_.fixed[value] = true;
    known_.hidden[value] = state;
    if (state)
      late_.push_back({value, sharding, source, true});
    else
      set(value, sharding, {source, "annotation", nullptr});
  }

  void seed_annotated_state() {
    known_.hidden.assign(known_.hidden.size(), false);
    dirty_.assign(dirty_.size(), true);
    for (const Input& input : graph_.inputs)
      if (input.state && input.annotation) seed_input(input);
    for (const Constraint& late : late_)
      set(late.value, late.sharding, {late.source, "annotation of the tensor it is written to", nullptr});
    follow_ties();
  }

  // The layout that unannotated state has now counts only where nothing else does: an earlier step chose it, perhaps
  // with fewer annotations.
  void seed_other_state() {
    for (const Input& input : graph_.inputs)
      if (input.state && !input.annotation && known_.shardings[input.value]->replicated()) seed_input(input);
    follow_ties();
  }

  // A parameter, its updated value, its gradient and its optimizer state share a sharding.
  bool follow_ties() {
    bool changed = false;
    for (auto [a, b] : ties_) {
      changed |= adopt(b, known_.shardings[a], a);
      changed |= adopt(a, known_.shardings[b], b);
    }
    return changed;
  }

  bool adopt(ValueId to, const ShardingRef& sharding, ValueId from) {
    if (known_.fixed[to] || known_.hidden[to] || known_.hidden[from]) return false;
    ShardingRef finer = extend(known_.shardings[to], sharding, graph_.values[to].type.shape);
    if (finer == known_.shardings[to]) return false;
    set(to, finer, graph_.values[from].why);
    return true;
  }

  OpContext context(size_t node) const {
    return {graph_.mesh, graph_.nodes[node].call.get(), rules_[node].get(), true};
  }

  // Where a dim's new cut comes from: the largest tensor of the op that already has it.
  Provenance origin(const Node& node, const OpContext& op, ValueId target) const {
    const Provenance* from = nullptr;
    int64_t bytes = -1;
    for (size_t t = 0; t < op.num_tensors(); ++t) {
      const ValueId value = tensor_of(node, t);
      if (value == target || !known_.cuts(value)) continue;
      if (op.type(t).bytes() > bytes) {
        bytes = op.type(t).bytes();
        from = &graph_.values[value].why;
      }
    }
    if (!from) return {};
    return {from->source, from->origin, node.call, node.source};
  }

  // What a node asks for depends on its own tensors only: it is looked at again when one of them has changed.
  bool visit(size_t index) {
    if (!dirty_[index]) return false;
    dirty_[index] = false;
    const Node& node = graph_.nodes[index];
    const OpContext op = context(index);
    const PreferenceTable::Preference* preference = preferences_.of(node, op, known_);
    if (!preference) return false;
    bool changed = false;
    for (size_t t = 0; t < op.num_tensors(); ++t) {
      const ValueId value = tensor_of(node, t);
      if (known_.fixed[value] || known_.hidden[value]) continue;
      const Shape& shape = op.type(t).shape;
      const ShardingRef& wanted = preference->placement.of(t);
      ShardingRef finer = extend(known_.shardings[value], without_partial(wanted, shape), shape);
      if (finer == known_.shardings[value]) continue;
      set(value, finer, origin(node, op, value));
      changed = true;
    }
    return changed;
  }

  void sweep_until_stable() {
    for (int sweep = 0; sweep < kLimits.sweeps; ++sweep) {
      bool changed = false;
      for (size_t i = 0; i < graph_.nodes.size(); ++i) changed |= visit(i);
      changed |= follow_ties();
      for (size_t i = graph_.nodes.size(); i-- > 0;) changed |= visit(i);
      changed |= follow_ties();
      if (!changed) return;
    }
  }

  Graph& graph_;
  PreferenceTable preferences_;
  Known known_;
  std::vector<bool> dirty_;  // by node: a tensor of it has changed since the last visit
  std::vector<std::vector<NodeId>> users_;
  std::vector<Constraint> late_;  // annotated results that are state: they count after the data
  std::vector<std::pair<ValueId, ValueId>> ties_;
  std::vector<OpRuleRef> rules_;
};

}  // namespace

void propagate(Graph& graph, const CompileOptions& options) {
  if (graph.mesh) Propagation(graph, options).run();
}

}  // namespace spmdx
