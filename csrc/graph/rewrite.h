// SPDX-License-Identifier: Apache-2.0
// Rewrite: builds a new graph from an old one, node by node, with a map from old values to new ones.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// The graph with these of its nodes, in this order, which comes to a node after those that it reads from. Nothing else
// may need the others. Values are numbered as a Rewrite does that keeps these nodes.
void reorder(Graph& graph, const std::vector<NodeId>& order);

// The new graph begins with the inputs of the old one, already mapped. The values of all outputs must be mapped before
// finish().
class Rewrite {
 public:
  explicit Rewrite(const Graph& from);
  // Appends a copy of an old node, whose operands are the mapped ones, and maps its results. Throws InternalError where
  // an operand is not mapped; so do operands() and mapped().
  void keep(const Node& node) { keep(node, operands(node)); }
  // The same with these operands, which are values of the new graph.
  void keep(const Node& node, std::vector<ValueId> operands);
  // The operands of an old node, mapped.
  std::vector<ValueId> operands(const Node& node) const;
  // A copy of an old node with these, which is not appended.
  Node mapped(const Node& node) const;
  void map(ValueId from, ValueId to) { map_[from] = to; }
  ValueId at(ValueId from) const { return map_[from]; }  // kNone for an old value that is not mapped
  Graph& to() { return to_; }
  // Adds the old outputs and constraints over the mapped values, without constraints on values that are not mapped.
  // Returns the new graph. Called once.
  Graph finish();
  // The same with these values of the new graph as its outputs, one for each old output.
  Graph finish(const std::vector<ValueId>& outputs);

 private:
  const Graph& from_;
  Graph to_;
  std::vector<ValueId> map_;
};

// Marks all that the marked values are computed from. `needed` has an element for each value.
void mark_needed(const Graph& graph, std::vector<bool>& needed);
// The outputs' values, and all that they are computed from.
std::vector<bool> needed_values(const Graph& graph, const std::vector<Output>& outputs);
// For each node whether some output needs it.
std::vector<bool> needed_nodes(const Graph& graph);
// Removes the nodes that no output needs.
void drop_dead(Graph& graph);
// The indices of Graph::inputs in the order in which nodes first read them; inputs that no node reads come last.
std::vector<size_t> inputs_by_use(const Graph& graph);

}  // namespace spmdx
