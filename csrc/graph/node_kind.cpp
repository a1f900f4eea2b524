// SPDX-License-Identifier: Apache-2.0
#include "graph/node_kind.h"

#include <algorithm>

namespace spmdx {

size_t HashOfNodeKind::operator()(const NodeKind& kind) const {
  uint64_t h = kind.size;
  for (size_t i = 0; i < std::min(kind.size, kind.first.size()); ++i)
    h = hash_combine(h, reinterpret_cast<uintptr_t>(kind.first[i]));
  for (const void* part : kind.rest) h = hash_combine(h, reinterpret_cast<uintptr_t>(part));
  return h;
}

NodeKind kind_of(const Graph& graph, const Node& node) {
  NodeKind kind;
  const auto add = [&](const void* part) {
    if (kind.size < kind.first.size())
      kind.first[kind.size] = part;
    else
      kind.rest.push_back(part);
    ++kind.size;
  };
  add(node.call.get());
  for (const ValueId value : node.inputs) add(graph.values[value].sharding.get());
  for (ValueId r = 0; r < node.call->outputs.size(); ++r) add(graph.values[node.output + r].sharding.get());
  return kind;
}

}  // namespace spmdx
