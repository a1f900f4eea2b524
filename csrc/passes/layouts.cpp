// SPDX-License-Identifier: Apache-2.0
// Layouts of values, and the collectives that make new ones.
#include "passes/layouts.h"

namespace spmdx {

const ReshardPlan& Layouts::plan(ValueId value, const Layout& layout, ShardingRef wanted) const {
  const TensorType& type = from_.values[value].type;
  return plan_reshard(type.dtype, type.shape, layout.sharding, wanted, topology_);
}

size_t Layouts::cheapest(ValueId value, ShardingRef wanted) const {
  size_t best = 0;
  int64_t best_cost = -1;
  for (size_t i = 0; i < known_[value].size(); ++i) {
    if (known_[value][i].sharding == wanted) return i;  // also where a slice would be as cheap
    const int64_t cost = plan(value, known_[value][i], wanted).cost_ns;
    if (best_cost >= 0 && cost >= best_cost) continue;
    best = i;
    best_cost = cost;
  }
  return best;
}

int64_t Layouts::cost(ValueId value, ShardingRef wanted) const {
  return plan(value, known_[value][cheapest(value, wanted)], wanted).cost_ns;
}

ValueId Layouts::get(ValueId value, ShardingRef wanted, SourceId source, const std::string& reason) {
  const Layout start = known_[value][cheapest(value, wanted)];
  const TensorType& type = from_.values[value].type;
  ValueId at = start.value;
  for (const Move& move : plan(value, start, wanted).moves) {
    Call call;
    call.op = collective_op(move.kind);
    call.args = {TensorArg{0}};
    call.inputs = {type};
    call.outputs = {type};
    at = rewrite_.to().add_node(seal(std::move(call)), {at}, source);
    Node& node = rewrite_.to().nodes.back();
    node.atoms = move.atoms;
    node.bytes = move.bytes;
    node.cause = reason;
    rewrite_.to().values[at].sharding = move.to;
    rewrite_.to().values[at].why = from_.values[value].why;
    known_[value].push_back({move.to, at});
  }
  return at;
}

}  // namespace spmdx
