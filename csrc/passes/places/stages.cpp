// SPDX-License-Identifier: Apache-2.0
// Stages: one sweep along the program, and one against it.
#include "passes/places/stages.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "graph/places.h"
#include "passes/places/homes.h"
#include "passes/places/movement.h"
#include "passes/places/repeats.h"
#include "rules/lookup.h"
#include "rules/rows/windows.h"
#include "rules/rule/rule.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

using StageSet = std::set<int32_t>;

class Assigner {
 public:
  Assigner(const Graph& graph, std::map<NodeId, int32_t> moved)
      : graph_(graph),
        readers_(users(graph)),
        repeats_(repeats(graph)),
        copies_(graph.values.size()),
        moved_forwards_(std::move(moved)) {
    stages_.axis = stage_axis(graph);
    const size_t nodes = graph.nodes.size(), values = graph.values.size();
    stages_.of_node.assign(nodes, kAllStages), stages_.of_value.assign(values, kAllStages);
    stages_.phase.assign(nodes, {}), stages_.forward.assign(nodes, false);
    stages_.after_backward.assign(values, false), settled_.assign(values, false);
    kept_.assign(values, kUnasked), updates_.assign(nodes, false), again_.assign(nodes, false);
  }

  Stages run() {
    if (stages_.axis < 0) return std::move(stages_);
    read_ends();
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) go_on(id);
    home_ = homes(graph_, kept_, stages_.after_backward, updates_);
    for (ValueId value = 0; value < graph_.values.size(); ++value)
      if (home_[value] >= 0) bring_home(value, home_[value]);
    for (NodeId id = 0; id < graph_.nodes.size(); ++id)
      if (updates_[id]) set(id, update_stage(graph_.nodes[id]));
    for (NodeId id = static_cast<NodeId>(graph_.nodes.size()); id-- > 0;) move_to_readers(id);
    place_uploads();
    return std::move(stages_);
  }

 private:
  static constexpr int32_t kUnasked = -2;              // where an output lies, or what no output is
  static constexpr size_t kMostBroughtHome = 1 << 12;  // ops of one gradient

  int32_t stage_in(const ShardingRef& sharding) const {
    return !sharding || sharding->place.whole() ? kAllStages : static_cast<int32_t>(sharding->place.stage);
  }

  void read_ends() {
    for (const Input& input : graph_.inputs) {
      const bool foreign = lies_on_another_mesh(graph_, input);
      const int32_t here = foreign ? kAllStages : stage_in(input.physical), asked = stage_in(input.annotation);
      stages_.of_value[input.value] = here == kAllStages ? asked : here;  // what all devices have, one will keep
      if (asked != kAllStages && asked != here) moved_[input.value] = asked;
    }
    for (const Constraint& constraint : graph_.constraints)
      if (const int32_t stage = stage_in(constraint.sharding); stage != kAllStages) fixed_[constraint.value] = stage;
    for (const Output& output : graph_.outputs) kept_[output.value] = stage_kept(output);
    home_ = kept_;
  }

  int32_t stage_kept(const Output& output) const {
    if (output.annotation) return stage_in(output.annotation);
    return output.tied == kNone ? kUnasked : stages_.of_value[graph_.inputs[output.tied].value];
  }

  int64_t bytes(ValueId id) const {
    const Value& value = graph_.values[id];
    if (value.type.dtype == DType::unknown) return 0;
    return bytes_on_a_device(value.type, value.sharding);
  }

  bool is_at(ValueId value, int32_t stage) const {
    const int32_t home = stages_.of_value[value];
    return home == kAllStages || home == stage || copies_[value].contains(stage);
  }

  // What is read there is sent there, or made there of what it is made of.
  void note_reader(ValueId value, int32_t stage) {
    while (stage != kAllStages && !is_at(value, stage)) {
      copies_[value].insert(stage);
      const Node* movement = movement_of(graph_, value);
      if (!movement) return;
      value = movement->inputs[0];
    }
  }

  // ---- along the program -------------------------------------------------------------------------------

  void go_on(NodeId id) {
    const Node& node = graph_.nodes[id];
    Phase phase = node.recorded.phase;
    again_[id] = node.recorded.again;
    bool reads_gradients = false, reads_others = false;
    for (ValueId value : node.inputs) {
      (is_gradient(value) ? reads_gradients : reads_others) = true;
      const NodeId producer = graph_.values[value].producer;
      if (node.recorded.phase.number != 0 || producer == kNone) continue;
      phase = std::max(phase, stages_.phase[producer]);
      again_[id] = again_[id] || again_[producer];
    }
    again_[id] = again_[id] || (is_backward(phase.number) && !reads_gradients && repeats_[id] != kNone);
    const bool backward = is_backward(phase.number) && !(again_[id] && !reads_gradients);
    const bool forward = reads_gradients && !backward && reads_others && !goes_on_with_a_gradient(node);
    const bool after = reads_gradients && !forward;
    stages_.phase[id] = phase;
    updates_[id] = after && !backward;
    if (forward) settle(node);
    int32_t stage = backward && after ? backward_stage(node) : after ? update_stage(node) : own_stage(id);
    stages_.forward[id] = !backward && !after;
    if (const auto moved = moved_forwards_.find(id); moved != moved_forwards_.end()) stage = moved->second;
    for (size_t r = 0; r < node.call->outputs.size(); ++r)
      if (const auto at = fixed_.find(node.output + static_cast<ValueId>(r)); at != fixed_.end()) stage = at->second;
    set(id, stage);
    const bool made =
        !backward && (!again_[id] || repeats_[id] != kNone) && stage != kAllStages && !node.call->outputs.empty();
    if (made && node.recorded.op && !movement_of(graph_, node.output))
      stage_of_op_.try_emplace(node.recorded.op, stage);  // views are recorded with the op that reads them
    for (ValueId value : node.inputs) note_reader(value, stage);
    // What begins a backward pass lies on all stages; views and what is computed anew read values of one.
    const bool begins =
        backward && (node.inputs.empty() || std::any_of(node.inputs.begin(), node.inputs.end(),
                                                        [&](ValueId v) { return stages_.of_value[v] == kAllStages; }));
    const bool makes_gradients = after || begins;
    for (size_t r = 0; r < node.call->outputs.size(); ++r) stages_.after_backward[node.output + r] = makes_gradients;
  }

  // Of a parameter that was updated, what a forward pass reads is a value like any other.
  bool is_gradient(ValueId value) const { return stages_.after_backward[value] && !settled_[value]; }

  // Whether the result is, element by element, made of a gradient or of what an optimizer made of one.
  bool goes_on_with_a_gradient(const Node& node) const {
    const OpRuleRef rule = rule_for(node.call);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (is_gradient(node.inputs[i]) && rule->inputs[i] == rule->outputs[0]) return true;
    return false;
  }

  // A forward pass reads these, and what they are moved from.
  void settle(const Node& node) {
    for (ValueId value : node.inputs) {
      while (is_gradient(value)) {
        settled_[value] = true;
        if (const Node* movement = movement_of(graph_, value)) value = movement->inputs[0];
      }
    }
  }

  void set(NodeId id, int32_t stage) {
    const Node& node = graph_.nodes[id];
    stages_.of_node[id] = stage;
    for (size_t r = 0; r < node.call->outputs.size(); ++r) stages_.of_value[node.output + r] = stage;
  }

  // Where a value is read: on the stage that is to keep it, also if it comes from another one in this step.
  int32_t stage_to_read(ValueId value) const {
    const auto moved = moved_.find(value);
    return moved == moved_.end() ? stages_.of_value[value] : moved->second;
  }

  int32_t last_stage(const Node& node) const {
    int32_t stage = kAllStages;
    for (ValueId value : node.inputs) stage = std::max(stage, stage_to_read(value));
    return stage;
  }

  // What a backward pass makes of values, and of no gradient, is made where the op ran, or the one that this repeats,
  // if they are there.
  int32_t own_stage(NodeId id) const {
    const Node& node = graph_.nodes[id];
    if (!is_backward(node.recorded.phase.number)) return last_stage(node);
    const auto ran = stage_of_op_.find(node.recorded.op);
    const bool is_repeat = ran == stage_of_op_.end() && again_[id] && repeats_[id] != kNone;
    if (ran == stage_of_op_.end() && !is_repeat) return last_stage(node);
    const int32_t stage = is_repeat ? stages_.of_node[repeats_[id]] : ran->second;
    const auto is_there = [&](ValueId value) { return is_at(value, stage); };
    return std::ranges::all_of(node.inputs, is_there) ? stage : last_stage(node);
  }

  // Where the optimizer's ops run: beside what they replace, or what is largest.
  int32_t update_stage(const Node& node) const {
    int32_t stage = kAllStages;
    int64_t most = -1;
    for (size_t r = 0; r < node.call->outputs.size(); ++r)
      if (const int32_t home = home_[node.output + r]; home >= 0) return home;
    for (ValueId value : node.inputs) {
      if (stages_.of_value[value] == kAllStages || bytes(value) <= most) continue;
      most = bytes(value);
      stage = stages_.of_value[value];
    }
    return stage;
  }

  // Not after the stage of a gradient. A sum of gradients runs where they are. Else it is the stage of the op whose
  // backward pass it is; or the latest that has all which the forward pass made or read, or most of it.
  int32_t backward_stage(const Node& node) const {
    int32_t gradients = INT32_MAX;
    bool reads_others = false;
    for (ValueId value : node.inputs) {
      reads_others |= !is_gradient(value);
      if (is_gradient(value) && stages_.of_value[value] != kAllStages)
        gradients = std::min(gradients, stages_.of_value[value]);
    }
    if (gradients == INT32_MAX) return last_stage(node);
    const auto forward = stage_of_op_.find(node.recorded.op);
    const bool is_own = reads_others || !rules::is_sum(*node.call);
    if (is_own && forward != stage_of_op_.end() && forward->second <= gradients) return forward->second;
    StageSet candidates = {gradients};
    for (ValueId value : node.inputs) {
      if (is_gradient(value) || stages_.of_value[value] == kAllStages) continue;
      candidates.insert(stages_.of_value[value]);
      candidates.insert(copies_[value].begin(), copies_[value].end());
    }
    int32_t best = gradients;
    int64_t least = INT64_MAX;
    for (auto at = candidates.rbegin(); at != candidates.rend(); ++at) {
      if (*at > gradients) continue;
      int64_t missing = 0;
      for (ValueId value : node.inputs)
        if (!is_gradient(value) && !is_at(value, *at)) missing += bytes(value);
      if (missing >= least) continue;
      least = missing;
      best = *at;
    }
    return best;
  }

  // Whether all that the forward pass left for it is there, and something is: then only gradients are sent.
  bool is_made_of_what_is_at(const Node& node, int32_t stage) const {
    bool any = false;
    for (ValueId value : node.inputs) {
      if (is_gradient(value)) continue;
      if (!is_at(value, stage)) return false;
      any = true;
    }
    return any;
  }

  // A gradient of a parameter is a sum over microbatches. Where its terms can be made beside the parameter, of what is
  // there anyway, they are, and the sum is, too.
  void bring_home(ValueId gradient, int32_t home) {
    const NodeId last = graph_.values[gradient].producer;
    if (last == kNone || updates_[last] || stages_.of_node[last] == home) return;
    std::vector<NodeId> open = {last}, found;
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      const Node& node = graph_.nodes[id];
      if (is_bound(node) || stages_.phase[id].number % 2 != 0) return;
      found.push_back(id);
      for (ValueId value : node.inputs) {
        if (is_at(value, home) || is_made_of_what_is_at(node, home)) continue;
        const NodeId producer = graph_.values[value].producer;
        const bool passes_on = node.inputs.size() == 1 || rules::is_sum(*node.call);
        if (producer == kNone || !passes_on || found.size() > kMostBroughtHome) return;
        open.push_back(producer);
      }
    }
    for (NodeId id : found) set(id, home);
  }

  // ---- against the program -----------------------------------------------------------------------------

  // Whether the node reads what lies on a stage from before the step.
  bool is_bound(const Node& node) const {
    for (ValueId value : node.inputs)
      if (graph_.values[value].producer == kNone && stages_.of_value[value] != kAllStages) return true;
    for (size_t r = 0; r < node.call->outputs.size(); ++r)
      if (fixed_.contains(node.output + static_cast<ValueId>(r))) return true;
    return false;
  }

  void add_readers(ValueId value, StageSet& found) const {
    for (NodeId reader : readers_[value]) found.insert(stages_.of_node[reader]);
    if (kept_[value] != kUnasked) found.insert(kept_[value]);
  }

  // The one stage that reads its results; kUnasked: there are several, or none.
  int32_t stage_of_readers(const Node& node) const {
    StageSet found;
    for (size_t r = 0; r < node.call->outputs.size(); ++r) add_readers(node.output + static_cast<ValueId>(r), found);
    return found.size() == 1 && *found.begin() != kAllStages ? *found.begin() : kUnasked;
  }

  // Data that no mesh has cut are at hand everywhere; they are held where they are read.
  void place_uploads() {
    for (const Input& input : graph_.inputs) {
      if (input.physical) continue;
      StageSet found;
      add_readers(input.value, found);
      stages_.of_value[input.value] = found.size() == 1 ? *found.begin() : kAllStages;
    }
  }

  // Of a gradient: what a stage makes of it is sent once a step, as a sum.
  bool is_term(NodeId id) const { return !updates_[id] && home_[graph_.nodes[id].output] >= 0; }

  void move_to_readers(NodeId id) {
    const Node& node = graph_.nodes[id];
    const int32_t here = stages_.of_node[id], there = stage_of_readers(node);
    if (there == kUnasked || there == here || is_bound(node) || is_term(id)) return;
    if (here == kAllStages) return set(id, there);
    int64_t sent_before = 0, sent_after = 0;
    for (ValueId value : std::set<ValueId>(node.inputs.begin(), node.inputs.end()))
      if (!is_at(value, there)) sent_before += bytes(value);
    for (size_t r = 0; r < node.call->outputs.size(); ++r)
      if (!readers_[node.output + r].empty()) sent_after += bytes(node.output + static_cast<ValueId>(r));
    if (sent_before >= sent_after) return;
    set(id, there);
    for (ValueId value : node.inputs) note_reader(value, there);
  }

  const Graph& graph_;
  const std::vector<std::vector<NodeId>> readers_;
  const std::vector<NodeId> repeats_;
  std::vector<StageSet> copies_;  // by value: other stages that read it
  std::vector<int32_t> kept_;     // by value: where an output is to lie
  std::vector<int32_t> home_;     // the same, and of gradients; kUnasked: nothing says
  std::vector<bool> updates_;     // by node: it is an optimizer's
  std::vector<bool> again_;       // by node: Recorded::again, or of the nodes that it reads from
  std::vector<bool> settled_;     // by value: a parameter that a forward pass reads
  const std::map<NodeId, int32_t> moved_forwards_;
  std::map<ValueId, int32_t> fixed_;                   // by value: what a constraint says
  std::unordered_map<ValueId, int32_t> moved_;         // by input: the stage it comes to in this step
  std::unordered_map<uint64_t, int32_t> stage_of_op_;  // by Recorded::op: of the first node of the forward pass
  Stages stages_;
};

}  // namespace

Stages stages_of(const Graph& graph, const std::map<NodeId, int32_t>& moved) { return Assigner(graph, moved).run(); }

}  // namespace spmdx
