// SPDX-License-Identifier: Apache-2.0
// Drops: values that are not held up to their later readers, which read what is computed anew.
#pragma once
#include <map>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// A graph in which some values are computed anew, and what its parts were in the one that it was made of.
struct Rebuilt {
  Graph graph;
  std::vector<NodeId> for_node;   // by node: the one of the other graph that it is, or that reads what it makes
  std::vector<ValueId> value_of;  // by value: which one of the other graph this is
};

class Drops {
 public:
  // What reads the value after this node has it computed anew, right before the first that does.
  void add(ValueId value, NodeId after);
  void remove(ValueId value, NodeId after);
  bool contain(ValueId value, NodeId after) const;
  bool empty() const { return after_.empty(); }

  // REQUIRES: no value that is dropped is an input or an output of the graph.
  Rebuilt rebuild(const Graph& graph) const;

 private:
  friend class Rebuilder;
  std::map<ValueId, std::vector<NodeId>> after_;  // ascending
};

}  // namespace spmdx
