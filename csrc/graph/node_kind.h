// SPDX-License-Identifier: Apache-2.0
// Node kind: what nodes that do the same have in common, so that it is looked at once.
#pragma once
#include <array>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// The call of a node, and the shardings of its operands and results. It holds neither: they are those of a graph.
struct NodeKind {
  size_t size = 0;
  std::array<const void*, 8> first = {};  // most nodes have no more
  std::vector<const void*> rest;
  bool operator==(const NodeKind&) const = default;
};

struct HashOfNodeKind {
  size_t operator()(const NodeKind& kind) const;
};

NodeKind kind_of(const Graph& graph, const Node& node);

}  // namespace spmdx
