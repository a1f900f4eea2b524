// SPDX-License-Identifier: Apache-2.0
// Layouts of values, and the collectives that make new ones.
#include "passes/layouts.h"

#include <algorithm>

namespace spmdx {

ReshardPlanRef Layouts::plan(ValueId value, const Layout& layout, const ShardingRef& wanted) const {
  const TensorType& type = from_.values[value].type;
  return plan_reshard(type.dtype, type.shape, layout.sharding, wanted, topology_);
}

size_t Layouts::cheapest(ValueId value, const ShardingRef& wanted) const {
  const std::vector<Layout>& known = known_[value];
  const auto same = std::find_if(known.begin(), known.end(), [&](const Layout& l) { return l.sharding == wanted; });
  if (same != known.end()) return static_cast<size_t>(same - known.begin());  // also where a slice is free
  size_t best = 0;
  int64_t best_cost = -1;
  for (size_t i = 0; i < known.size(); ++i) {
    const int64_t cost = plan(value, known[i], wanted)->cost_ns;
    if (best_cost >= 0 && cost >= best_cost) continue;
    best = i;
    best_cost = cost;
  }
  return best;
}

void Layouts::forget(ValueId value, NodeId at) {
  std::vector<Layout>& known = known_[value];
  known.erase(std::remove_if(known.begin() + 1, known.end(), [at](const Layout& copy) { return copy.used < at; }),
              known.end());
}

ValueId Layouts::move(ValueId value, const Layout& start, const ShardingRef& wanted, NodeId at, SourceId source,
                      const std::string& cause) {
  const TensorType& type = from_.values[value].type;
  ValueId made = start.value;
  const ReshardPlanRef moves = plan(value, start, wanted);
  for (const Move& move : moves->moves) {
    Call call;
    call.op = collective_op(move.kind);
    call.args = {TensorArg{0}};
    call.inputs = {type};
    call.outputs = {type};
    made = rewrite_.to().add_node(seal(std::move(call)), {made}, source);
    Node& node = rewrite_.to().nodes.back();
    node.sub_axes = move.sub_axes;
    node.bytes = move.bytes;
    node.cause = cause;
    rewrite_.to().values[made].sharding = move.to;
    rewrite_.to().values[made].why = from_.values[value].why;
    known_[value].push_back({move.to, made, at});
  }
  return made;
}

}  // namespace spmdx
