// SPDX-License-Identifier: Apache-2.0
// Idle axes: products that several devices repeat are shared out over the axes that they leave unused.
#pragma once
#include "passes/search/chain.h"

namespace spmdx {

class IdleAxes {
 public:
  IdleAxes(Assignment& assignment, Chain& chain) : assignment_(assignment), graph_(assignment.graph()), chain_(chain) {}

  // Tries the largest products first. Whether the total fell.
  bool run();

 private:
  bool try_product(NodeId node);
  // The node takes this choice, and its neighbours follow.
  void take(NodeId node, const ChoiceRef& choice);
  uint64_t likeness(NodeId node) const;

  Assignment& assignment_;
  const Graph& graph_;
  Chain& chain_;
  std::unordered_map<uint64_t, int> failures_;
};

}  // namespace spmdx
