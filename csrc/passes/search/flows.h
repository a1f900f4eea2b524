// SPDX-License-Identifier: Apache-2.0
// Flows: where the axes of the mesh are tried, each time all along the dim that they cut.
#pragma once
#include <map>

#include "passes/search/flow.h"

namespace spmdx {

class Flows {
 public:
  Flows(Assignment& assignment, Chain& chain)
      : assignment_(assignment), graph_(assignment.graph()), chain_(chain), runner_(assignment) {}

  // Tries every axis. Whether the total fell.
  bool run();

 private:
  bool try_products(SubAxisSet axis, Through through);
  bool try_product(const Flow& flow, NodeId node);
  bool try_sums(SubAxisSet axis);
  bool try_sum(const Flow& flow, ValueId sum);
  bool try_outputs(SubAxisSet axis);
  // Runs the flow, and keeps what comes of it if the total fell. It must fall without the weight of products, too: more
  // must be saved than the moves cost on these devices and wires. And only products are worth moving outputs for.
  bool attempt(const Flow& flow, Steps steps, uint64_t like);
  struct Before {
    Chain::Before chain;
    int64_t outputs, moved_values;
  };
  bool pays(const Before& since) const;
  bool attempt_part(const Before& since, NodeId source, std::map<NodeId, ChoiceRef> changes);
  std::vector<SubAxisSet> axes() const;
  std::vector<NodeId> products() const;
  std::vector<ValueId> sums(SubAxisSet axis) const;

  Assignment& assignment_;
  const Graph& graph_;
  Chain& chain_;
  FlowRunner runner_;
  std::unordered_map<uint64_t, int> failures_;
};

}  // namespace spmdx
