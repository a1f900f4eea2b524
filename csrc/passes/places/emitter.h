// SPDX-License-Identifier: Apache-2.0
// Emitter: lists nodes in an order that somebody chooses, what they need before them.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace spmdx {

class Emitter {
 public:
  explicit Emitter(const Graph& graph) : graph_(graph), done_(graph.nodes.size(), false) {}

  // Lists the node, unless it is there, behind all that it needs.
  void emit(NodeId id) {
    open_.assign(1, id);
    while (!open_.empty()) {
      const NodeId node = open_.back();
      const NodeId missing = done_[node] ? kNone : first_missing(node);
      if (missing != kNone) {
        open_.push_back(missing);
        continue;
      }
      open_.pop_back();
      if (done_[node]) continue;
      done_[node] = true;
      order_.push_back(node);
    }
  }

  const std::vector<NodeId>& order() const { return order_; }

 private:
  NodeId first_missing(NodeId id) const {
    for (ValueId value : graph_.nodes[id].inputs) {
      const NodeId producer = graph_.values[value].producer;
      if (producer != kNone && !done_[producer]) return producer;
    }
    return kNone;
  }

  const Graph& graph_;
  std::vector<bool> done_;
  std::vector<NodeId> open_, order_;
};

}  // namespace spmdx
