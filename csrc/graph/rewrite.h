// SPDX-License-Identifier: Apache-2.0
// Rewriting a graph node by node: the new graph beside the map from old values to new ones.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// Starts with the old graph's inputs. Every old value must be mapped before finish().
class Rewrite {
 public:
  explicit Rewrite(const Graph& from);
  // Appends a copy of an old node over the mapped operands; maps its results.
  void keep(const Node& node);
  // An old node's copy over the mapped operands, not appended.
  Node mapped(const Node& node) const;
  void map(ValueId from, ValueId to) { map_[from] = to; }
  ValueId at(ValueId from) const { return map_[from]; }
  Graph& to() { return to_; }
  // Renumbers outputs and constraints (dropping constraints on values that are gone) and gives up the graph.
  Graph finish();

 private:
  const Graph& from_;
  Graph to_;
  std::vector<ValueId> map_;
};

// Nodes that some output needs.
std::vector<bool> needed_nodes(const Graph& graph);
void drop_dead(Graph& graph);
// Inputs, as indices of Graph::inputs, in the order of their first use; then those that no node reads.
std::vector<size_t> inputs_by_use(const Graph& graph);

}  // namespace spmdx
