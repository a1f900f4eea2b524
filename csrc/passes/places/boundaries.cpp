// SPDX-License-Identifier: Apache-2.0
// Boundaries: groups of nodes that may move, by union-find, and the best end of each in program order.
#include "passes/places/boundaries.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "graph/places.h"
#include "passes/places/movement.h"
#include "rules/lookup.h"
#include "rules/rule/rule.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

constexpr size_t kMostInAGroup = 256;  // nodes; a group takes time by their number squared

class Boundaries {
 public:
  Boundaries(const Graph& graph, const Stages& stages)
      : graph_(graph),
        stages_(stages),
        readers_(users(graph)),
        stays_(graph.values.size(), false),
        held_(graph.values.size(), false),
        at_hand_(graph.values.size(), false),
        read_at_(graph.values.size()),
        target_(graph.nodes.size(), kAllStages),
        group_(graph.nodes.size()) {
    std::iota(group_.begin(), group_.end(), NodeId{0});
    for (const Output& output : graph.outputs) stays_[output.value] = true;
  }

  // From the last stage on, so that it is known what the next ones read.
  std::map<NodeId, int32_t> run() {
    find_held();
    std::map<int32_t, std::vector<NodeId>, std::greater<>> by_stage;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id)
      if (stages_.of_node[id] != kAllStages) by_stage[stages_.of_node[id]].push_back(id);
    for (const auto& [stage, nodes] : by_stage) settle(nodes);
    return std::move(moved_);
  }

 private:
  // What is known, or may be: of nodes of one stage alone.
  int32_t stage_of(NodeId id) const {
    if (target_[id] != kAllStages) return target_[id];
    const auto moved = moved_.find(id);
    return moved == moved_.end() ? stages_.of_node[id] : moved->second;
  }

  // Which of a stage's nodes move, and where all of them read.
  void settle(const std::vector<NodeId>& nodes) {
    for (size_t i = nodes.size(); i-- > 0;) target_[nodes[i]] = target(nodes[i]);
    for (const NodeId id : nodes) {
      if (target_[id] == kAllStages) continue;
      for (size_t r = 0; r < graph_.nodes[id].call->outputs.size(); ++r)
        join_readers(graph_.nodes[id].output + static_cast<ValueId>(r));
      for (const ValueId value : graph_.nodes[id].inputs) join_readers(value);
    }
    std::map<NodeId, std::vector<NodeId>> groups;  // in program order
    for (const NodeId id : nodes)
      if (target_[id] != kAllStages) groups[root(id)].push_back(id);
    for (const auto& [first, group] : groups)
      for (const std::vector<NodeId>& part : parts(group)) move(part, part.size() < group.size());
    for (const NodeId id : nodes) {
      target_[id] = kAllStages;
      for (const ValueId value : graph_.nodes[id].inputs) read_at_[sent(value)].insert(stage_of(id));
    }
  }

  // Of a large group those of each microbatch: what all of them read, as a table, made them one.
  std::vector<std::vector<NodeId>> parts(const std::vector<NodeId>& group) const {
    if (group.size() <= kMostInAGroup) return {group};
    std::map<int32_t, std::vector<NodeId>> by_phase;
    for (const NodeId id : group) by_phase[stages_.phase[id].number].push_back(id);
    std::vector<std::vector<NodeId>> found;
    for (auto& [phase, nodes] : by_phase) found.push_back(std::move(nodes));
    return found;
  }

  void move(const std::vector<NodeId>& group, bool is_part) {
    for (size_t at = best_start(group, is_part); at < group.size(); ++at) {
      moved_.emplace(group[at], target_[group[at]]);
      if (!is_part) continue;
      for (const ValueId value : graph_.nodes[group[at]].inputs) read_at_[sent(value)].insert(target_[group[at]]);
    }
  }

  // The one later stage on which the node could run, as all of its forward readers are there or could be.
  int32_t target(NodeId id) const {
    const Node& node = graph_.nodes[id];
    const int32_t here = stages_.of_node[id];
    if (!stages_.forward[id] || here == kAllStages || is_bound(node)) return kAllStages;
    int32_t found = kAllStages;
    for (size_t r = 0; r < node.call->outputs.size(); ++r) {
      const ValueId value = node.output + static_cast<ValueId>(r);
      if (stays_[value] || held_[value]) return kAllStages;
      for (const NodeId reader : readers_[value]) {
        if (is_backward(stages_.phase[reader].number) && !stages_.forward[reader]) continue;  // it follows the node
        const int32_t there = stage_of(reader);
        if (there <= here || !stages_.forward[reader] || (found != kAllStages && there != found)) return kAllStages;
        found = there;
      }
    }
    return found;
  }

  // What lies on a stage from before the step, or is to lie there, and what is made of nothing else.
  void find_held() {
    for (const Input& input : graph_.inputs) {
      const bool is_to_lie = input.annotation && !input.annotation->place.whole();
      held_[input.value] = is_to_lie || (input.physical && stages_.of_value[input.value] != kAllStages);
      at_hand_[input.value] = !input.physical;
    }
    for (const Constraint& constraint : graph_.constraints)
      if (constraint.sharding && !constraint.sharding->place.whole()) held_[constraint.value] = true;
    for (const Node& node : graph_.nodes) {
      if (node.inputs.empty() || !std::ranges::all_of(node.inputs, [&](ValueId value) { return held_[value]; }))
        continue;
      for (size_t r = 0; r < node.call->outputs.size(); ++r) held_[node.output + r] = true;
    }
  }

  // Whether it reads parameters, or is what devices spend their time on.
  bool is_bound(const Node& node) const {
    return rule_for(node.call)->product ||
           std::ranges::any_of(node.inputs, [&](ValueId value) { return held_[value]; });
  }

  // What is sent where this value is read elsewhere.
  ValueId sent(ValueId value) const {
    while (const Node* movement = movement_of(graph_, value)) value = movement->inputs[0];
    return value;
  }

  bool is_at(ValueId value, int32_t stage) const {
    const int32_t home = stages_.of_value[value];
    return at_hand_[value] || home == kAllStages || home == stage || read_at_[value].contains(stage);
  }

  NodeId root(NodeId id) {
    while (group_[id] != id) id = group_[id] = group_[group_[id]];
    return id;
  }

  // Nodes that move to one stage are a group with what they read, and with others that read the same.
  void join_readers(ValueId value) {
    const NodeId producer = graph_.values[value].producer;
    std::map<int32_t, NodeId> first;  // by the stage
    const auto join = [&](NodeId id) {
      if (target_[id] == kAllStages) return;
      const auto [at, fresh] = first.try_emplace(target_[id], id);
      if (!fresh) group_[root(id)] = root(at->second);
    };
    if (producer != kNone) join(producer);
    for (const NodeId reader : readers_[value])
      if (target_[reader] != kAllStages && !is_at(sent(value), target_[reader])) join(reader);
  }

  // From where on the nodes of a group run elsewhere: with least to send, and of such as few as can be.
  size_t best_start(const std::vector<NodeId>& group, bool is_part) const {
    size_t best = group.size();
    if (group.size() > kMostInAGroup) return best;
    int64_t least = sent_bytes(group, best, is_part);
    for (size_t start = group.size(); start-- > 0;)
      if (const int64_t bytes = sent_bytes(group, start, is_part); bytes < least) least = bytes, best = start;
    return best;
  }

  // In how many microbatches, and what begins before them, nodes that may move there read the value.
  int64_t phases_that_read(ValueId value, int32_t there) const {
    std::set<int32_t> found;
    for (const NodeId reader : readers_[value])
      if (target_[reader] == there) found.insert(stages_.phase[reader].number);
    return std::max<int64_t>(1, std::ssize(found));
  }

  // A part pays its share of what others read as well.
  int64_t sent_bytes(const std::vector<NodeId>& group, size_t start, bool is_part) const {
    const int32_t there = target_[group[0]];
    const std::set<NodeId> all(group.begin(), group.end()),
        moved(group.begin() + static_cast<ptrdiff_t>(start), group.end());
    std::set<ValueId> values;
    const auto read = [&](ValueId read_value) {
      const ValueId value = sent(read_value);
      const NodeId producer = graph_.values[value].producer;
      const bool is_ours = producer != kNone && all.contains(producer);
      if (is_ours ? !moved.contains(producer) : !is_at(value, there)) values.insert(value);
    };
    for (const NodeId id : moved)
      for (const ValueId value : graph_.nodes[id].inputs) read(value);
    for (const NodeId id : all)
      for (size_t r = 0; r < graph_.nodes[id].call->outputs.size(); ++r) {
        const ValueId value = graph_.nodes[id].output + static_cast<ValueId>(r);
        if (std::ranges::any_of(readers_[value],
                                [&](NodeId reader) { return stages_.forward[reader] && !all.contains(reader); }))
          read(value);
      }
    int64_t bytes = 0;
    for (const ValueId value : values)
      if (const Value& at = graph_.values[value]; at.type.dtype != DType::unknown)
        bytes += bytes_on_a_device(at.type, at.sharding) / (is_part ? phases_that_read(value, there) : 1);
    return bytes;
  }

  const Graph& graph_;
  const Stages& stages_;
  const std::vector<std::vector<NodeId>> readers_;
  std::vector<bool> stays_;                 // by value: the step gives it to somebody
  std::vector<bool> held_;                  // by value: parameters
  std::vector<bool> at_hand_;               // by value: data that no mesh has cut
  std::vector<std::set<int32_t>> read_at_;  // by value: stages of nodes that do not move
  std::vector<int32_t> target_;             // by node: the stage that it may move to, or kAllStages
  std::map<NodeId, int32_t> moved_;
  std::vector<NodeId> group_;  // by node: another one of its group; the root is its own
};

}  // namespace

Stages stages_with_least_sent(const Graph& graph) {
  Stages stages = stages_of(graph);
  if (stages.axis < 0) return stages;
  const std::map<NodeId, int32_t> moved = Boundaries(graph, stages).run();
  return moved.empty() ? stages : stages_of(graph, moved);
}

}  // namespace spmdx
