// SPDX-License-Identifier: Apache-2.0
// Unsettled: the nodes for which something has changed since they were asked for their best response.
#pragma once
#include <set>

#include "passes/readers/position_set.h"
#include "passes/readers/uses.h"

namespace spmdx {

// To ask any other node would change nothing. A node is settled, unsettled, or called: it is going to be asked.
class Unsettled {
 public:
  // All nodes are. `graph` and `uses` outlive this.
  Unsettled(const Graph& graph, const Uses& uses);

  // A node that is called stays so.
  void mark(NodeId node);
  void mark_producer(ValueId value);
  void mark_readers(ValueId value, uint32_t begin, uint32_t end);  // by position
  void mark_all();

  bool is_settled(NodeId node) const { return states_[node] == State::settled; }
  void call(NodeId node);
  // Calls those that make or read a tensor of the node, and adds them.
  void call_around(NodeId node, std::set<NodeId>& to);
  // A node that was called will not be asked after all.
  void dismiss(NodeId node);
  // It was asked.
  void settle(NodeId node);

 private:
  enum class State : uint8_t { settled, unsettled, called };
  void put(NodeId node, State state);
  void call_readers(ValueId value, std::set<NodeId>& to);

  const Graph& graph_;
  const Uses& uses_;
  std::vector<State> states_;                     // by node
  std::vector<PositionSet> settled_, unsettled_;  // by value: positions of readers in this state
};

}  // namespace spmdx
