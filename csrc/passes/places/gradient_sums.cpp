// SPDX-License-Identifier: Apache-2.0
// Gradient sums: trees of adds, taken apart where nobody else reads their inner nodes.
#include "passes/places/gradient_sums.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "graph/rewrite.h"
#include "rules/rows/windows.h"

namespace spmdx {
namespace {

class Finder {
 public:
  Finder(const Graph& graph, const Stages& stages) : graph_(graph), stages_(stages), readers_(users(graph)) {
    for (const Output& output : graph.outputs) kept_.insert(output.value);
  }

  GradientSums run() const {
    GradientSums found;
    found.inner.assign(graph_.nodes.size(), false);
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (!is_term_sum(id)) continue;
      found.inner[id] = is_inner(id);
      if (!found.inner[id]) collect(id, found.terms[id]);
    }
    return found;
  }

 private:
  const Node& node(NodeId id) const { return graph_.nodes[id]; }

  // Adds two values that lie alike, in a backward pass.
  bool is_term_sum(NodeId id) const {
    const Node& at = node(id);
    if (!rules::is_sum(*at.call) || at.call->num_params || stages_.phase[id].number % 2 != 0) return false;
    if (at.call->inputs[0] != at.call->outputs[0] || at.call->inputs[1] != at.call->outputs[0]) return false;
    const ShardingRef& sharding = graph_.values[at.output].sharding;
    return stages_.after_backward[at.output] && std::all_of(at.inputs.begin(), at.inputs.end(), [&](ValueId value) {
             return graph_.values[value].sharding == sharding;
           });
  }

  // Read by another such sum alone.
  bool is_inner(NodeId id) const {
    const ValueId value = node(id).output;
    return !kept_.contains(value) && readers_[value].size() == 1 && is_term_sum(readers_[value][0]);
  }

  // In the order in which they are added.
  void collect(NodeId root, std::vector<ValueId>& terms) const {
    std::vector<ValueId> open(node(root).inputs.rbegin(), node(root).inputs.rend());
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      const NodeId producer = graph_.values[value].producer;
      if (producer != kNone && is_term_sum(producer) && is_inner(producer))
        open.insert(open.end(), node(producer).inputs.rbegin(), node(producer).inputs.rend());
      else
        terms.push_back(value);
    }
  }

  const Graph& graph_;
  const Stages& stages_;
  const std::vector<std::vector<NodeId>> readers_;
  std::set<ValueId> kept_;
};

class Splitter {
 public:
  Splitter(const Graph& graph, const Stages& stages) : graph_(graph), stages_(stages), rewrite_(graph) {}

  SplitSums run(const std::map<NodeId, std::vector<ValueId>>& sums) {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (const auto sum = sums.find(id); sum != sums.end()) {
        add_up(id, sum->second);
        continue;
      }
      rewrite_.keep(graph_.nodes[id]);  // what only the old sum read is dropped below
      note(stages_.of_node[id], kAllStages);
    }
    split_.graph = rewrite_.finish();
    drop_unread();
    return std::move(split_);
  }

 private:
  void note(int32_t stage, int32_t adds) {
    split_.of_node.push_back(stage);
    split_.adds.push_back(adds);
  }

  void drop_unread() {
    const std::vector<bool> needed = needed_nodes(split_.graph);
    SplitSums all = std::exchange(split_, {});
    for (NodeId id = 0; id < needed.size(); ++id)
      if (needed[id]) note(all.of_node[id], all.adds[id]);
    split_.graph = std::move(all.graph);
    drop_dead(split_.graph);
  }

  // A stage adds a term as soon as it is there; the sums meet in the place of the old one.
  void add_up(NodeId id, const std::vector<ValueId>& terms) {
    std::map<int32_t, ValueId> sums;
    for (ValueId value : terms) {
      const int32_t stage = stages_.of_value[value];
      const auto [sum, fresh] = sums.try_emplace(stage, rewrite_.at(value));
      if (fresh) continue;
      sum->second = add(id, value, sum->second, rewrite_.at(value));
      note(stage, stage);
    }
    ValueId total = kNone;
    for (const auto& [stage, sum] : sums) {
      if (std::exchange(total, total == kNone ? sum : add(id, graph_.nodes[id].output, total, sum)) == kNone) continue;
      note(stages_.of_node[id], kAllStages);
    }
    rewrite_.map(graph_.nodes[id].output, total);
  }

  // `of`: of whose microbatch the addition is a part.
  ValueId add(NodeId like, ValueId of, ValueId a, ValueId b) {
    const Node& node = graph_.nodes[like];
    Graph& to = rewrite_.to();
    const ValueId made = to.add_node(node.call, {a, b}, node.source);
    const NodeId producer = graph_.values[of].producer;
    Recorded& recorded = to.nodes.back().recorded;
    recorded.phase = stages_.phase[producer == kNone ? like : producer];
    if (producer != kNone) recorded.in_loop = graph_.nodes[producer].recorded.in_loop;
    to.values[made].sharding = graph_.values[node.output].sharding;
    to.values[made].why = graph_.values[node.output].why;
    return made;
  }

  const Graph& graph_;
  const Stages& stages_;
  Rewrite rewrite_;
  SplitSums split_;
};

bool several_from_elsewhere(const Stages& stages, const std::vector<ValueId>& terms, int32_t home) {
  std::map<int32_t, int> count;
  for (ValueId value : terms)
    if (const int32_t stage = stages.of_value[value]; stage != home && stage != kAllStages && ++count[stage] > 1)
      return true;
  return false;
}

}  // namespace

GradientSums gradient_sums(const Graph& graph, const Stages& stages) { return Finder(graph, stages).run(); }

std::optional<SplitSums> split_gradient_sums(const Graph& graph, const Stages& stages) {
  GradientSums sums = gradient_sums(graph, stages);
  std::erase_if(sums.terms, [&](const auto& sum) {
    return !several_from_elsewhere(stages, sum.second, stages.of_node[sum.first]);
  });
  if (sums.terms.empty()) return std::nullopt;
  return Splitter(graph, stages).run(sums.terms);
}

}  // namespace spmdx
