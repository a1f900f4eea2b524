// SPDX-License-Identifier: Apache-2.0
// Gradient sums: trees of adds, taken apart where nobody else reads their inner nodes.
#include "passes/places/gradient_sums.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/rewrite.h"
#include "rules/rows/windows.h"

namespace spmdx {
namespace {

class Splitter {
 public:
  Splitter(const Graph& graph, const Stages& stages) : graph_(graph), stages_(stages), readers_(users(graph)) {
    for (const Output& output : graph.outputs) kept_.insert(output.value);
  }

  // The sums that are worth it, by the node that makes them.
  std::map<NodeId, std::vector<ValueId>> find() const {
    std::map<NodeId, std::vector<ValueId>> found;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (!is_term_sum(id) || is_inner(id)) continue;
      std::vector<ValueId> terms;
      collect(id, terms);
      if (several_from_elsewhere(terms, stages_.of_node[id])) found.emplace(id, std::move(terms));
    }
    return found;
  }

  Graph split(const std::map<NodeId, std::vector<ValueId>>& sums) const {
    Rewrite rewrite(graph_);
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const auto sum = sums.find(id);
      if (sum == sums.end())
        rewrite.keep(graph_.nodes[id]);  // what only the old sum read is dropped below
      else
        add_up(id, sum->second, rewrite);
    }
    Graph result = rewrite.finish();
    drop_dead(result);
    return result;
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

  bool several_from_elsewhere(const std::vector<ValueId>& terms, int32_t home) const {
    std::map<int32_t, int> count;
    for (ValueId value : terms)
      if (const int32_t stage = stages_.of_value[value]; stage != home && stage != kAllStages && ++count[stage] > 1)
        return true;
    return false;
  }

  // A stage adds a term as soon as it is there; the sums meet in the place of the old one.
  void add_up(NodeId id, const std::vector<ValueId>& terms, Rewrite& rewrite) const {
    std::map<int32_t, ValueId> sums;
    for (ValueId value : terms) {
      const auto [sum, fresh] = sums.try_emplace(stages_.of_value[value], rewrite.at(value));
      if (!fresh) sum->second = add(id, value, sum->second, rewrite.at(value), rewrite);
    }
    ValueId total = kNone;
    for (const auto& [stage, sum] : sums)
      total = total == kNone ? sum : add(id, graph_.nodes[id].output, total, sum, rewrite);
    rewrite.map(node(id).output, total);
  }

  // `of`: of whose microbatch the addition is a part.
  ValueId add(NodeId like, ValueId of, ValueId a, ValueId b, Rewrite& rewrite) const {
    Graph& to = rewrite.to();
    const ValueId made = to.add_node(node(like).call, {a, b}, node(like).source);
    const NodeId producer = graph_.values[of].producer;
    Recorded& recorded = to.nodes.back().recorded;
    recorded.phase = stages_.phase[producer == kNone ? like : producer];
    if (producer != kNone) recorded.in_loop = node(producer).recorded.in_loop;
    to.values[made].sharding = graph_.values[node(like).output].sharding;
    to.values[made].why = graph_.values[node(like).output].why;
    return made;
  }

  const Graph& graph_;
  const Stages& stages_;
  const std::vector<std::vector<NodeId>> readers_;
  std::set<ValueId> kept_;
};

}  // namespace

bool split_gradient_sums(Graph& graph, const Stages& stages) {
  const Splitter splitter(graph, stages);
  const auto sums = splitter.find();
  if (sums.empty()) return false;
  graph = splitter.split(sums);
  return true;
}

}  // namespace spmdx
