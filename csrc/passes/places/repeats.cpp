// SPDX-License-Identifier: Apache-2.0
// Repeats: nodes by their calls, and by the first values that are equal to their operands.
#include "passes/places/repeats.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "graph/computation.h"

namespace spmdx {

namespace {

// By node: it is recorded as computed anew, or gives such a node what it reads, or reads from one.
std::vector<bool> beside_what_is_anew(const Graph& graph) {
  std::vector<bool> found(graph.nodes.size(), false);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const bool is_anew = graph.nodes[id].recorded.again;
    found[id] = found[id] || is_anew;
    for (const ValueId value : graph.nodes[id].inputs) {
      const NodeId from = graph.values[value].producer;
      if (from == kNone) continue;
      found[from] = found[from] || is_anew;
      found[id] = found[id] || graph.nodes[from].recorded.again;
    }
  }
  return found;
}

}  // namespace

std::vector<NodeId> repeats(const Graph& graph) {
  std::vector<NodeId> found(graph.nodes.size(), kNone);
  if (std::ranges::none_of(graph.nodes, [](const Node& node) { return node.recorded.again; })) return found;
  const std::vector<bool> is_beside = beside_what_is_anew(graph);
  std::vector<ValueId> first(graph.values.size());
  std::iota(first.begin(), first.end(), ValueId{0});
  ValueId number = kNone;  // one for all that are uploaded
  for (const Input& input : graph.inputs) {
    if (input.physical || !graph.values[input.value].type.shape.empty()) continue;
    if (number == kNone) number = input.value;
    first[input.value] = number;
  }
  std::unordered_map<Computation, NodeId, HashOfComputation> known;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    std::vector<ValueId> operands;
    for (const ValueId value : node.inputs) operands.push_back(first[value]);
    const auto [at, fresh] = known.try_emplace(Computation{node.call, std::move(operands)}, id);
    if (fresh) continue;
    if (is_beside[id]) found[id] = at->second;
    for (size_t r = 0; r < node.call->outputs.size(); ++r)
      first[node.output + r] = graph.nodes[at->second].output + static_cast<ValueId>(r);
  }
  return found;
}

}  // namespace spmdx
