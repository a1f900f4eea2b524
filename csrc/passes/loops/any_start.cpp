// SPDX-License-Identifier: Apache-2.0
#include "passes/loops/any_start.h"

#include "graph/args.h"
#include "rules/rule/row.h"

namespace spmdx {
namespace {

bool is_whole(const Value& value, int64_t dim) {
  if (!value.sharding) return true;
  const auto rank = static_cast<int64_t>(value.type.shape.size());
  return value.sharding->dims.at(static_cast<size_t>(dim < 0 ? dim + rank : dim)).empty();
}

}  // namespace

bool takes_any_start(const Graph& graph, const Node& node, const Node& recorded) {
  const Call& call = *node.call;
  if (recorded.call->start->whole_op && call.op != recorded.call->op) return false;
  if (rules::form_of(call) == rules::Form::view) return true;  // knows how long a part is, and not where it begins
  if (!call.start) return false;
  std::vector<int64_t> here, there;
  add_starts(call, here);
  add_starts(*recorded.call, there);
  if (here != there) return false;
  if (call.start->dim < 0) return true;  // each device takes what it holds of the range, wherever that begins
  const Value& value = graph.value(call.start->of_result ? node.output : node.inputs[0]);
  return is_whole(value, integer(call, static_cast<size_t>(call.start->dim), 0));
}

}  // namespace spmdx
