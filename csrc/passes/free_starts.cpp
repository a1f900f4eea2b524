// SPDX-License-Identifier: Apache-2.0
// Free starts: follows each start from the recorded node to those that the plan has instead.
#include "passes/free_starts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "graph/args.h"
#include "graph/rewrite.h"
#include "passes/loops/any_start.h"

namespace spmdx {
namespace {

// The recorded nodes whose starts are one, as far as the plan is concerned.
class Groups {
 public:
  explicit Groups(size_t nodes) : leader_(nodes), takes_any_(nodes, true), has_nodes_(nodes, false) {
    std::iota(leader_.begin(), leader_.end(), 0);
  }
  NodeId leader(NodeId node) {
    while (leader_[node] != node) node = leader_[node] = leader_[leader_[node]];
    return node;
  }
  void join(NodeId a, NodeId b) {
    const NodeId from = leader(a), to = leader(b);
    leader_[from] = to;
    takes_any_[to] = takes_any_[to] && takes_any_[from];
    has_nodes_[to] = has_nodes_[to] || has_nodes_[from];
  }
  void add_node(NodeId node, bool takes_any) {
    const NodeId at = leader(node);
    has_nodes_[at] = true;
    if (!takes_any) takes_any_[at] = false;
  }
  void fix(NodeId node) { takes_any_[leader(node)] = false; }
  // A start of which no node is left may be in what came instead.
  bool open(NodeId node) { return takes_any_[leader(node)] && has_nodes_[leader(node)]; }

 private:
  std::vector<NodeId> leader_;
  std::vector<bool> takes_any_, has_nodes_;
};

Groups groups_of(const Graph& traced, const Graph& compiled) {
  Groups groups(traced.nodes.size());
  for (const auto& [gone, kept] : compiled.merged_starts) {
    if (kept == kNone)
      groups.fix(gone);
    else
      groups.join(gone, kept);
  }
  for (const Node& node : compiled.nodes)
    if (node.starts_of != kNone)
      groups.add_node(node.starts_of, takes_any_start(compiled, node, traced.nodes[node.starts_of]));
  return groups;
}

// The call with its starts as parameters, in order. A list keeps numbers, to which they are added.
CallRef with_params(const Call& from) {
  Call call = from;
  const StartRow& row = *from.start;
  call.num_params = static_cast<uint32_t>(num_starts(from));
  if (auto* list = std::get_if<std::vector<int64_t>>(&call.args[row.arg])) {
    std::fill(list->begin(), list->end(), 0);
    for (uint32_t i = 0; i < call.num_params; ++i) call.args.emplace_back(IntParam{i});
  } else {
    if (row.ends) call.args[row.arg + 1] = IntParam{0, length_of(from)};
    call.args[row.arg] = IntParam{0};
  }
  return seal(std::move(call));
}

// By node, the number of its first start.
std::vector<uint32_t> first_starts(const Graph& graph) {
  std::vector<uint32_t> first;
  uint32_t next = 0;
  for (const Node& node : graph.nodes) {
    first.push_back(next);
    next += static_cast<uint32_t>(num_starts(*node.call));
  }
  return first;
}

}  // namespace

void note_starts(Graph& graph) {
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (graph.nodes[id].call->start) graph.nodes[id].starts_of = id;
}

StartsOfPlan free_starts(const Graph& traced, Graph& compiled) {
  StartsOfPlan plan{starts_of(traced), {}, {}};
  if (plan.values.empty()) return plan;
  plan.open.resize(plan.values.size(), true);
  const std::vector<uint32_t> first = first_starts(traced);
  const std::vector<bool> needed = needed_nodes(traced);
  Groups groups = groups_of(traced, compiled);
  for (NodeId id = 0; id < traced.nodes.size(); ++id) {
    const bool open = groups.open(id);
    for (uint32_t i = 0; i < num_starts(*traced.nodes[id].call); ++i) {
      plan.open[first[id] + i] = open || !needed[id];
      if (const NodeId leader = groups.leader(id); open && leader != id)
        plan.equal.emplace_back(first[leader] + i, first[id] + i);
    }
  }
  for (Node& node : compiled.nodes) {
    if (node.starts_of == kNone || !node.call->start || !groups.open(node.starts_of)) continue;
    node.call = with_params(*node.call);
    node.param = traced.num_params + first[node.starts_of];
  }
  compiled.num_params = traced.num_params + static_cast<uint32_t>(plan.values.size());
  return plan;
}

}  // namespace spmdx
