// SPDX-License-Identifier: Apache-2.0
// Offload: copies between hosts and devices, and the order in which updates run, tensor by tensor.
#include "passes/places/offload.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "graph/places.h"
#include "graph/rewrite.h"
#include "passes/places/emitter.h"

namespace spmdx {
namespace {

bool lies_on_host(const Graph& graph, const Input& input) {
  return input.physical && input.physical->place.host && !comes_from_another_mesh(graph, input);
}

// An output without an annotation of its own lies where the tensor did that it replaces.
bool goes_to_host(const Graph& graph, const Output& output) {
  if (output.annotation) return output.annotation->place.host;
  if (output.tied == kNone) return false;
  const Input& tied = graph.inputs[output.tied];
  const ShardingRef& lies = tied.annotation ? tied.annotation : tied.physical;
  return lies && lies->place.host;
}

bool needs_hosts(const Graph& graph) {
  return std::ranges::any_of(graph.inputs, [&](const Input& input) { return lies_on_host(graph, input); }) ||
         std::ranges::any_of(graph.outputs, [&](const Output& output) { return goes_to_host(graph, output); });
}

class Copies {
 public:
  explicit Copies(const Graph& graph) : graph_(graph), rewrite_(graph) {}

  Graph run() {
    for (const Input& input : graph_.inputs) {
      ShardingRef& sharding = rewrite_.to().values[rewrite_.at(input.value)].sharding;
      if (lies_on_host(graph_, input)) sharding = on(sharding, sharding->place.on_host());
    }
    for (const Node& node : graph_.nodes) {
      std::vector<ValueId> operands;
      for (const ValueId value : node.inputs) operands.push_back(on_device(value, node));
      rewrite_.keep(node, std::move(operands));
    }
    std::vector<ValueId> kept;
    for (const Output& output : graph_.outputs) kept.push_back(finish(output));
    return rewrite_.finish(kept);
  }

 private:
  bool is_on_host(ValueId here) { return rewrite_.to().values[here].sharding->place.host; }

  ValueId on_device(ValueId old, const Node& reader) {
    const ValueId here = rewrite_.at(old);
    if (!is_on_host(here)) return here;
    const auto [known, fresh] = brought_.try_emplace(old, kNone);
    if (fresh) known->second = copied(here, kToDevice, reader.source, reader.recorded.phase);
    return known->second;
  }

  ValueId copied(ValueId from, std::string_view op, SourceId source, Phase phase) {
    Graph& to = rewrite_.to();
    const TensorType type = to.values[from].type;
    const ShardingRef before = to.values[from].sharding;
    Call call{.op = std::string(op), .args = {TensorArg{0}}, .inputs = {type}, .outputs = {type}};
    const ValueId made = to.add_node(seal(std::move(call)), {from}, source);
    to.nodes.back().recorded.phase = phase;
    to.values[made].sharding = on(before, op == kToHost ? before->place.on_host() : before->place.on_device());
    to.values[made].why = Provenance(to.values[from].why);
    return made;
  }

  ValueId finish(const Output& output) {
    const ValueId here = rewrite_.at(output.value);
    const bool on_host = is_on_host(here);
    if (on_host == goes_to_host(graph_, output)) return here;
    const auto& to = rewrite_.to();
    const NodeId producer = to.values[here].producer;
    const Phase phase = producer == kNone ? Phase{} : to.nodes[producer].recorded.phase;
    return copied(here, on_host ? kToDevice : kToHost, output.source, phase);
  }

  const Graph& graph_;
  Rewrite rewrite_;
  std::unordered_map<ValueId, ValueId> brought_;
};

// Which nodes work with what a copy brings or takes, each in a set with those of which it reads something that does not
// outlive the step.
class Together {
 public:
  explicit Together(const Graph& graph)
      : graph_(graph), leader_(graph.nodes.size()), works_(graph.nodes.size(), false) {
    std::iota(leader_.begin(), leader_.end(), 0);
    std::vector<bool> outlives(graph.values.size(), false);
    for (const Output& output : graph.outputs) outlives[output.value] = true;
    find_makers();
    for (NodeId id = 0; id < graph.nodes.size(); ++id) {
      if (is_host_copy(graph.nodes[id])) works_[id] = true;
      for (const ValueId value : graph.nodes[id].inputs)
        if (const NodeId from = graph.values[value].producer; from != kNone && works_[from] && !outlives[value])
          join(from, id);
    }
  }

  // What works with no copy in its order; then set after set, by their first nodes.
  std::vector<NodeId> order() {
    Emitter emitter(graph_);
    std::vector<std::vector<NodeId>> sets(graph_.nodes.size());
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) works_[id] ? sets[find(id)].push_back(id) : emitter.emit(id);
    for (const std::vector<NodeId>& set : sets)
      for (const NodeId id : set) emitter.emit(id);
    return emitter.order();
  }

 private:
  // State that is made in this step was brought by no copy: what makes it works, and what that alone begins with.
  void find_makers() {
    const std::vector<std::vector<NodeId>> readers = users(graph_);
    const std::vector<bool> numbers = made_of_numbers();
    const auto begin = [&](auto&& self, ValueId value) -> void {
      const NodeId from = graph_.values[value].producer;
      if (from == kNone || readers[value].size() != 1 || !numbers[from]) return;
      works_[from] = true;
      for (const ValueId read : graph_.nodes[from].inputs) self(self, read);
    };
    for (const Node& node : graph_.nodes) {
      if (node.call->op != kToHost) continue;
      const NodeId maker = graph_.values[node.inputs[0]].producer;
      if (maker == kNone) continue;
      works_[maker] = true;
      for (const ValueId value : graph_.nodes[maker].inputs) begin(begin, value);
    }
  }
  std::vector<bool> made_of_numbers() const {
    std::vector<bool> found(graph_.nodes.size());
    for (NodeId id = 0; id < graph_.nodes.size(); ++id)
      found[id] = std::ranges::all_of(graph_.nodes[id].inputs, [&](ValueId value) {
        const NodeId from = graph_.values[value].producer;
        return from == kNone ? graph_.values[value].type.shape.empty() : found[from];
      });
    return found;
  }
  NodeId find(NodeId id) {
    while (leader_[id] != id) id = leader_[id] = leader_[leader_[id]];
    return id;
  }
  void join(NodeId from, NodeId id) {
    works_[id] = true;
    const NodeId one = find(from), other = find(id);
    leader_[std::max(one, other)] = std::min(one, other);
  }

  const Graph& graph_;
  std::vector<NodeId> leader_;  // the first node of the set, by way of others
  std::vector<bool> works_;
};

}  // namespace

void offload(Graph& graph) {
  if (!graph.mesh || !needs_hosts(graph)) return;
  graph = Copies(graph).run();
  reorder(graph, Together(graph).order());
}

}  // namespace spmdx
