// SPDX-License-Identifier: Apache-2.0
// Drops: the nodes in their order, each with what it needs computed anew before it.
#include "passes/memory/drops.h"

#include <algorithm>
#include <utility>

#include "graph/rewrite.h"

namespace spmdx {

class Rebuilder {
 public:
  Rebuilder(const Graph& graph, const Drops& drops)
      : graph_(graph), drops_(drops), rewrite_(graph), passed_(graph.values.size(), 0) {
    for (const Input& input : graph.inputs) note_value(input.value);
  }

  Rebuilt run() {
    for (now_ = 0; now_ < graph_.nodes.size(); ++now_) {
      const Node& node = graph_.nodes[now_];
      std::vector<ValueId> operands;
      for (const ValueId value : node.inputs) operands.push_back(read(value));
      append(node, std::move(operands));
      for (ValueId r = 0; r < node.call->outputs.size(); ++r) passed_[node.output + r] = drops_before(node.output + r);
    }
    rebuilt_.graph = rewrite_.finish();
    return std::move(rebuilt_);
  }

 private:
  void note_value(ValueId of) {
    const ValueId value = rewrite_.at(of);
    if (rebuilt_.value_of.size() <= value) rebuilt_.value_of.resize(value + 1, kNone);
    rebuilt_.value_of[value] = of;
  }

  void append(const Node& node, std::vector<ValueId> operands) {
    rewrite_.keep(node, std::move(operands));
    rebuilt_.for_node.push_back(now_);
    for (ValueId r = 0; r < node.call->outputs.size(); ++r) note_value(node.output + r);
  }

  // How often the value has been dropped before the node that is built now.
  size_t drops_before(ValueId value) const {
    const auto found = drops_.after_.find(value);
    if (found == drops_.after_.end()) return 0;
    return static_cast<size_t>(std::ranges::lower_bound(found->second, now_) - found->second.begin());
  }

  ValueId read(ValueId value) {
    if (passed_[value] != drops_before(value)) compute_anew(graph_.nodes[graph_.values[value].producer]);
    return rewrite_.at(value);
  }

  // Results of the node that were not dropped stay what they are.
  void compute_anew(const Node& node) {
    std::vector<ValueId> operands, before;
    for (const ValueId value : node.inputs) operands.push_back(read(value));
    for (ValueId r = 0; r < node.call->outputs.size(); ++r) before.push_back(rewrite_.at(node.output + r));
    append(node, std::move(operands));
    Recorded& recorded = rewrite_.to().nodes.back().recorded;
    recorded.phase = graph_.nodes[now_].recorded.phase;
    recorded.again = recorded.by_plan = true;
    for (ValueId r = 0; r < node.call->outputs.size(); ++r) {
      const ValueId value = node.output + r;
      const size_t drops = drops_before(value);
      if (std::exchange(passed_[value], drops) == drops) rewrite_.map(value, before[r]);
    }
  }

  const Graph& graph_;
  const Drops& drops_;
  Rewrite rewrite_;
  std::vector<size_t> passed_;  // by value: drops before what now stands for it was made
  NodeId now_ = 0;
  Rebuilt rebuilt_;
};

void Drops::add(ValueId value, NodeId after) {
  std::vector<NodeId>& all = after_[value];
  const auto at = std::ranges::lower_bound(all, after);
  if (at == all.end() || *at != after) all.insert(at, after);
}

void Drops::remove(ValueId value, NodeId after) {
  const auto found = after_.find(value);
  if (found == after_.end()) return;
  std::erase(found->second, after);
  if (found->second.empty()) after_.erase(found);
}

bool Drops::contain(ValueId value, NodeId after) const {
  const auto found = after_.find(value);
  return found != after_.end() && std::ranges::binary_search(found->second, after);
}

Rebuilt Drops::rebuild(const Graph& graph) const { return Rebuilder(graph, *this).run(); }

}  // namespace spmdx
