// SPDX-License-Identifier: Apache-2.0
// Flow: some sub-axes cut one dim of a value, and the same dim of every value that it becomes or comes from.
#pragma once
#include <set>
#include <tuple>

#include "passes/search/chain.h"

namespace spmdx {

// Through which nodes a flow leads: those that leave its sub-axes unused; all but products; all. Nodes that use them
// give up what they cut.
enum class Through : uint8_t { unused, other_ops, all };

struct Flow {
  SubAxisSet sub_axes;
  Through through;
};

// Lets flows run, and knows where each has been: two that start at the same dim are the same.
class FlowRunner {
 public:
  explicit FlowRunner(Assignment& assignment) : assignment_(assignment), graph_(assignment.graph()) {}

  // `sharding` of a value with cuts by these sub-axes alone; null where there is none.
  ShardingRef only(SubAxisSet sub_axes, const ShardingRef& sharding, ValueId value) const;
  // A value with one dim cut by these sub-axes; null where that is no legal layout.
  ShardingRef cut(SubAxisSet sub_axes, ValueId value, size_t dim) const;
  bool has_been(const Flow& flow, ValueId value, const ShardingRef& layout) const;
  // Steps to all nodes that have `value`, but to `from`.
  void tell(ValueId value, const ShardingRef& layout, NodeId from, Steps& steps) const;
  // Takes the steps, and those that follow from them. Who has changed.
  std::set<NodeId> run(const Flow& flow, Steps steps);

 private:
  ChoiceRef choice_with(const Flow& flow, const Step& step) const;
  bool keeps_what_stays(NodeId node, const Choice& choice) const;

  Assignment& assignment_;
  const Graph& graph_;
  std::set<std::tuple<SubAxisSet, Through, ValueId, const Sharding*>> been_;
};

}  // namespace spmdx
