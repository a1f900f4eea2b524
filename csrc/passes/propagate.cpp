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

// Null where the cuts are not for a value of this shape, or cannot be made of it.
ShardingRef laid_out(const MeshRef& mesh, const Cuts& cuts, const Shape& shape) {
  if (cuts.size() != shape.size()) return nullptr;
  SubAxisSet used = 0;
  for (size_t d = 0; d < cuts.size(); ++d) {
    for (const SubAxisId sub_axis : cuts[d].sub_axes) {
      const SubAxisSet bit = SubAxisSet{1} << sub_axis;
      if (sub_axis >= mesh->sub_axes().size() || (used & bit)) return nullptr;
      used |= bit;
    }
    if (cuts[d].tile != 1 || !is_legal(*mesh, cuts[d], shape[d])) return nullptr;
  }
  return intern({mesh, cuts}, shape);
}

// What is known of the values so far. Layouts of data come first, layouts of state (parameters) after them: the data
// says where work is done, and how a parameter is stored matters only where the data says nothing.
class Propagation {
 public:
  Propagation(Graph& graph, const CompileOptions& options, Walk& walk)
      : graph_(graph), preferences_(options.topology), users_(users(graph)), walk_(walk) {
    if (const auto stretch = walk.next()) ahead_ = *stretch;
    behind_ = walk.begin();
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
    settle();
    seed_annotated_state();
    settle();
    seed_other_state();
    settle();
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
    Changes changes;
    for (size_t t = 0; t < op.num_tensors(); ++t) {
      const ValueId value = tensor_of(node, t);
      if (known_.fixed[value] || known_.hidden[value]) continue;
      const Shape& shape = op.type(t).shape;
      const ShardingRef& wanted = preference->placement.of(t);
      ShardingRef finer = extend(known_.shardings[value], without_partial(wanted, shape), shape);
      if (finer == known_.shardings[value]) continue;
      set(value, finer, origin(node, op, value));
      changes.emplace_back(t, finer);
    }
    if (!changes.empty()) leave(index, changes);
    return !changes.empty();
  }

  void sweep_until_stable() {
    const auto follow_and_leave = [this] {
      const bool changed = follow_ties();
      if (changed && behind_) behind_->push_back(Trail::kTies);
      return changed;
    };
    for (int sweep = 0; sweep < kLimits.sweeps; ++sweep) {
      bool changed = false;
      for (size_t i = 0; i < graph_.nodes.size(); ++i) changed |= visit(i);
      changed |= follow_and_leave();
      for (size_t i = graph_.nodes.size(); i-- > 0;) changed |= visit(i);
      changed |= follow_and_leave();
      if (!changed) return;
    }
  }

  // ---- trails ----

  using Changes = std::vector<std::pair<size_t, ShardingRef>>;  // by tensor of a node

  void leave(size_t node, const Changes& changes) {
    if (!behind_) return;
    behind_->push_back(static_cast<uint32_t>(node));
    behind_->push_back(static_cast<uint32_t>(changes.size()));
    for (const auto& [tensor, sharding] : changes) {
      behind_->push_back(static_cast<uint32_t>(tensor));
      behind_->push_back(walk_.leaves->number_of(sharding->dims));
    }
  }

  // As was left for this tensor; false where it does not fit: sizes are others, and the trail may come from a file.
  bool take_over(size_t node, size_t tensor, size_t layout) {
    const OpContext op = context(node);
    if (tensor >= op.num_tensors() || layout >= walk_.follows->layouts.size()) return false;
    const ValueId value = tensor_of(graph_.nodes[node], tensor);
    if (known_.fixed[value] || known_.hidden[value]) return true;
    const ShardingRef sharding = laid_out(graph_.mesh, walk_.follows->layouts[layout], op.type(tensor).shape);
    if (!sharding) return false;
    if (sharding != known_.shardings[value]) set(value, sharding, origin(graph_.nodes[node], op, value));
    return true;
  }

  // The words of a node's changes.
  void revisit(uint32_t node) {
    const size_t changes = ahead_.empty() ? 0 : std::min<size_t>(ahead_[0], (ahead_.size() - 1) / 2);
    bool fits = node < graph_.nodes.size();
    for (size_t c = 0; c < changes; ++c) fits = fits && take_over(node, ahead_[1 + 2 * c], ahead_[2 + 2 * c]);
    ahead_ = ahead_.subspan(std::min(ahead_.size(), 1 + 2 * changes));
    if (fits || node >= graph_.nodes.size()) return;
    dirty_[node] = true;
    visit(node);
  }

  // False where the trail ends.
  bool follow() {
    while (!ahead_.empty()) {
      const uint32_t word = ahead_.front();
      ahead_ = ahead_.subspan(1);
      if (word == Trail::kStable) return true;
      if (word == Trail::kTies)
        follow_ties();
      else
        revisit(word);
    }
    return false;
  }

  void settle() {
    if (!follow()) sweep_until_stable();
    if (behind_) behind_->push_back(Trail::kStable);
  }

  Graph& graph_;
  PreferenceTable preferences_;
  Known known_;
  std::vector<bool> dirty_;  // by node: a tensor of it has changed since the last visit
  std::vector<std::vector<NodeId>> users_;
  std::vector<Constraint> late_;  // annotated results that are state: they count after the data
  std::vector<std::pair<ValueId, ValueId>> ties_;
  std::vector<OpRuleRef> rules_;
  const Walk& walk_;
  std::span<const uint32_t> ahead_;          // what is left of the stretch that it follows
  std::vector<uint32_t>* behind_ = nullptr;  // the stretch that it leaves, if anybody asks
};

}  // namespace

void propagate(Graph& graph, const CompileOptions& options, Walk& walk) {
  if (graph.mesh) Propagation(graph, options, walk).run();
}

void propagate(Graph& graph, const CompileOptions& options) {
  Walk nowhere;
  propagate(graph, options, nowhere);
}

}  // namespace spmdx
