// SPDX-License-Identifier: Apache-2.0
// Propagate: from a few user shardings to a sharding and a provenance on every value.
#include <algorithm>
#include <optional>

#include "passes/chunks.h"
#include "passes/expand.h"
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "passes/rows.h"
#include "passes/search.h"
#include "passes/strategy.h"

namespace spmdx {
namespace {

constexpr int kMaxSweeps = 8;
constexpr int kMaxExpansions = 4;
constexpr size_t kMaxTurns = 3;

// What is known of the values so far. Layouts of data lead, layouts of state (parameters) follow: how a parameter is
// stored says nothing of where the work on it should be done while the data says something else.
class Propagation {
 public:
  Propagation(Graph& graph, const CompileOptions& options) : graph_(graph), options_(options), users_(users(graph)) {
    const size_t n = graph.values.size();
    current_.resize(n);
    fixed_.assign(n, false);
    hidden_.assign(n, false);
    dirty_.assign(graph.nodes.size(), true);
    for (size_t v = 0; v < n; ++v) current_[v] = replicated(graph.mesh, graph.values[v].type.shape.size());
    for (Value& value : graph.values) value.why = {};
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
    for (size_t v = 0; v < current_.size(); ++v) graph_.values[v].sharding = current_[v];
  }

  // Nodes whose best strategy cuts a composite factor.
  std::vector<bool> to_expand() {
    std::vector<bool> expand(graph_.nodes.size(), false);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!rules_[i]->expand) continue;
      const OpContext op = context(i);
      if (auto best = choose(i, op)) expand[i] = cuts_composite(op, *best);
    }
    return expand;
  }

 private:
  void link_ties() {
    for (const Output& output : graph_.outputs) {
      if (output.tied == kNone) continue;
      Input& input = graph_.inputs[output.tied];
      input.state = true;
      if (graph_.values[input.value].type.shape != graph_.values[output.value].type.shape) continue;
      if (output.value == input.value) continue;
      ties_.push_back({input.value, output.value});
    }
  }

  void set(ValueId value, ShardingRef sharding, Provenance why) {
    current_[value] = sharding;
    graph_.values[value].why = std::move(why);
    for (NodeId user : users_[value]) dirty_[user] = true;
    if (graph_.values[value].producer != kNone) dirty_[graph_.values[value].producer] = true;
  }

  void seed_input(const Input& input) {
    const std::string name = input.name.empty() ? "an input" : input.name;
    if (input.annotation) {
      set(input.value, input.annotation, {input.source, "annotation of " + name, nullptr});
      fixed_[input.value] = true;
    } else if (input.physical && !comes_from_another_mesh(graph_, input) && !fixed_[input.value]) {
      set(input.value, without_partial(input.physical, graph_.values[input.value].type.shape),
          {0, "layout of " + name, nullptr});
    }
  }

  void seed_data() {
    for (const Input& input : graph_.inputs) {
      if (!input.state) {
        seed_input(input);
      } else if (input.annotation) {
        fixed_[input.value] = hidden_[input.value] = true;
      } else if (input.physical && !comes_from_another_mesh(graph_, input) && !input.physical->replicated()) {
        hidden_[input.value] = true;
      }
    }
    for (const Constraint& constraint : graph_.constraints)
      seed_result(constraint.value, constraint.sharding, constraint.source, constraint.state);
    for (const Output& output : graph_.outputs)
      if (output.annotation)
        seed_result(output.value, output.annotation, output.source, output.state || output.tied != kNone);
  }

  void seed_result(ValueId value, ShardingRef sharding, SourceId source, bool state) {
    if (fixed_[value]) return;
    fixed_[value] = true;
    hidden_[value] = state;
    state ? states_.push_back({value, sharding, source, true}) : set(value, sharding, {source, "annotation", nullptr});
  }

  void seed_annotated_state() {
    hidden_.assign(hidden_.size(), false);
    dirty_.assign(dirty_.size(), true);
    for (const Input& input : graph_.inputs)
      if (input.state && input.annotation) seed_input(input);
    for (const Constraint& state : states_)
      set(state.value, state.sharding, {state.source, "annotation of the tensor it is written to", nullptr});
    follow_ties();
  }

  // How unannotated state lies now decides only where nothing else does: it was found in an earlier step, which may
  // have known less.
  void seed_other_state() {
    for (const Input& input : graph_.inputs)
      if (input.state && !input.annotation && current_[input.value]->replicated()) seed_input(input);
    follow_ties();
  }

  // A parameter, its updated value, its gradient and its optimizer state share a sharding.
  bool follow_ties() {
    bool changed = false;
    for (auto [a, b] : ties_) {
      changed |= adopt(b, current_[a], a);
      changed |= adopt(a, current_[b], b);
    }
    return changed;
  }

  bool adopt(ValueId to, ShardingRef sharding, ValueId from) {
    if (fixed_[to] || hidden_[to] || hidden_[from]) return false;
    ShardingRef longer = extend(current_[to], sharding, graph_.values[to].type.shape);
    if (longer == current_[to]) return false;
    set(to, longer, graph_.values[from].why);
    return true;
  }

  OpContext context(size_t node) const {
    return {graph_.mesh, graph_.nodes[node].call.get(), rules_[node].get(), true};
  }

  ValueId tensor(const Node& node, size_t t) const {
    return t < node.inputs.size() ? node.inputs[t] : node.output + static_cast<ValueId>(t - node.inputs.size());
  }

  // Time of moving operands and results between what is known of them and what the strategy wants.
  int64_t cost(const Node& node, const OpContext& op, const Strategy& strategy, const Placement& placement) const {
    int64_t total = compute_ns(op, strategy, options_.topology) + composite_ns(op, strategy, options_.topology);
    for (size_t t = 0; t < op.num_tensors(); ++t) {
      const bool is_input = t < node.inputs.size();
      const ValueId value = tensor(node, t);
      const TensorType& type = op.type(t);
      if (hidden_[value]) continue;
      ShardingRef known = current_[value];
      ShardingRef wanted = is_input ? placement.inputs[t] : placement.outputs[t - node.inputs.size()];
      if (is_input) {
        total += plan_reshard(type.dtype, type.shape, known, wanted, options_.topology)->cost_ns;
      } else if (fixed_[value] || !known->replicated()) {
        total += plan_reshard(type.dtype, type.shape, wanted, known, options_.topology)->cost_ns;
      } else if (wanted->partial) {
        total += plan_reshard(type.dtype, type.shape, wanted, without_partial(wanted, type.shape), options_.topology)
                     ->cost_ns;
      }
    }
    return total;
  }

  std::optional<Strategy> choose(size_t index, const OpContext& op) const {
    const Node& node = graph_.nodes[index];
    std::vector<std::vector<ShardingRef>> hints(op.num_tensors());
    bool any = false;
    for (size_t t = 0; t < hints.size(); ++t) {
      const ValueId value = tensor(node, t);
      if (hidden_[value] || current_[value]->replicated()) continue;
      hints[t].push_back(current_[value]);
      any = true;
    }
    if (!any) return std::nullopt;
    std::optional<Strategy> best;
    int64_t best_cost = 0;
    for (Strategy& strategy : candidates(op, hints)) {
      auto placement = place(op, strategy);
      if (!placement) continue;
      const int64_t now = cost(node, op, strategy, *placement);
      if (!best || now < best_cost) {
        best = std::move(strategy);
        best_cost = now;
      }
    }
    return best;
  }

  // Where a dim's new cut comes from: the largest tensor of the op that already has it.
  Provenance origin(const Node& node, const OpContext& op, ValueId target) const {
    const Provenance* from = nullptr;
    int64_t bytes = -1;
    for (size_t t = 0; t < op.num_tensors(); ++t) {
      const ValueId value = tensor(node, t);
      if (value == target || hidden_[value] || current_[value]->replicated()) continue;
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
    const auto strategy = choose(index, op);
    if (!strategy) return false;
    const auto placement = place(op, *strategy);
    bool changed = false;
    for (size_t t = 0; t < op.num_tensors(); ++t) {
      const ValueId value = tensor(node, t);
      if (fixed_[value] || hidden_[value]) continue;
      const Shape& shape = op.type(t).shape;
      ShardingRef wanted = t < node.inputs.size() ? placement->inputs[t] : placement->outputs[t - node.inputs.size()];
      ShardingRef longer = extend(current_[value], without_partial(wanted, shape), shape);
      if (longer == current_[value]) continue;
      set(value, longer, origin(node, op, value));
      changed = true;
    }
    return changed;
  }

  void sweep_until_stable() {
    for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
      bool changed = false;
      for (size_t i = 0; i < graph_.nodes.size(); ++i) changed |= visit(i);
      changed |= follow_ties();
      for (size_t i = graph_.nodes.size(); i-- > 0;) changed |= visit(i);
      changed |= follow_ties();
      if (!changed) return;
    }
  }

  Graph& graph_;
  const CompileOptions& options_;
  std::vector<ShardingRef> current_;
  std::vector<bool> fixed_;   // the user's word: never changed
  std::vector<bool> hidden_;  // not to be looked at yet
  std::vector<bool> dirty_;   // by node: a tensor of it has changed since the last visit
  std::vector<std::vector<NodeId>> users_;
  std::vector<Constraint> states_;  // annotated results that are state
  std::vector<std::pair<ValueId, ValueId>> ties_;
  std::vector<OpRuleRef> rules_;
};

void spread(Graph& graph, const CompileOptions& options) {
  for (int round = 0;; ++round) {
    Propagation propagation(graph, options);
    propagation.run();
    if (round == kMaxExpansions) return;
    const std::vector<bool> nodes = propagation.to_expand();
    if (std::find(nodes.begin(), nodes.end(), true) == nodes.end()) return;
    expand(graph, nodes);
    drop_dead(graph);  // what an expansion makes for results that nobody reads
  }
}

// A propagated graph, and the time of its plan once somebody has asked: a search is most of the work.
struct Candidate {
  Graph graph;
  std::optional<int64_t> known;

  int64_t total(const CompileOptions& options) {
    if (!known) known = decide(graph, options)->total();
    return *known;
  }
};

// Propagates, and turns rows where the plan is cheaper for it.
Candidate spread_and_turn(Graph graph, const CompileOptions& options) {
  spread(graph, options);
  Candidate best{std::move(graph), {}};
  const std::vector<Merge> merges = blocked_merges(best.graph);
  for (size_t i = 0; i < merges.size() && i < kMaxTurns; ++i) {
    auto turned = turn_rows(best.graph, merges[i]);
    if (!turned) continue;
    spread(*turned, options);
    Candidate other{std::move(*turned), {}};
    if (other.total(options) < best.total(options)) best = std::move(other);
  }
  return best;
}

}  // namespace

void propagate(Graph& graph, const CompileOptions& options) {
  if (!graph.mesh) return;
  Candidate plain = spread_and_turn(std::move(graph), options);
  if (auto chunks = see_chunks(plain.graph)) {
    Candidate seen = spread_and_turn(std::move(*chunks), options);
    if (seen.total(options) < plain.total(options)) plain = std::move(seen);
  }
  graph = std::move(plain.graph);
}

}  // namespace spmdx
