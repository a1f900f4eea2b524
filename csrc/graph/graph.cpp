// SPDX-License-Identifier: Apache-2.0
// Graph: adds inputs and nodes, and names ops.
#include "graph/graph.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace spmdx {
namespace {

ValueId next_value(const Graph& graph) {
  internal_check(graph.values.size() < kNone, "a graph has too many values");
  return static_cast<ValueId>(graph.values.size());
}

constexpr std::string_view kCollectivePrefix = "spmdx.comm.";

}  // namespace

ValueId Graph::add_input(TensorType type, std::string name) {
  const ValueId id = next_value(*this);
  values.push_back({.type = std::move(type), .why = {}});
  inputs.push_back({.value = id, .name = std::move(name)});
  return id;
}

ValueId Graph::add_node(CallRef call, std::vector<ValueId> operands, SourceId source, uint32_t param) {
  internal_check(call != nullptr, "a node without a call");
  // Messages are built only where they are needed, because this function runs for every recorded op.
  if (call->inputs.size() != operands.size())
    throw InternalError(call->op + " has " + std::to_string(call->inputs.size()) + " operand types and " +
                        std::to_string(operands.size()) + " operands");
  const ValueId first = next_value(*this);
  for (ValueId value : operands)
    if (value >= first) throw InternalError(call->op + " uses a value that is not in the graph");
  const auto id = static_cast<NodeId>(nodes.size());
  for (const TensorType& type : call->outputs) values.push_back({.type = type, .producer = id, .why = {}});
  num_params = std::max(num_params, call->num_params ? param + call->num_params : 0);
  nodes.push_back({.call = std::move(call),
                   .inputs = std::move(operands),
                   .output = first,
                   .param = param,
                   .source = source,
                   .recorded = {},
                   .cause = {}});
  return first;
}

SourceId source_of(const Graph& graph, ValueId value) {
  while (graph.values[value].producer != kNone) {
    const Node& node = graph.nodes[graph.values[value].producer];
    if (node.source != 0 || node.inputs.empty()) return node.source;
    value = node.inputs.back();
  }
  return 0;
}

bool comes_from_another_mesh(const Graph& graph, const Input& input) {
  return input.physical && graph.mesh && *input.physical->mesh != *graph.mesh;
}

std::vector<std::vector<NodeId>> users(const Graph& graph) {
  std::vector<std::vector<NodeId>> result(graph.values.size());
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    for (ValueId value : graph.nodes[id].inputs) {
      if (result[value].empty() || result[value].back() != id) result[value].push_back(id);
    }
  }
  return result;
}

// "ns.op.overload" becomes "ns.op". Ops of spmdx have no overloads, so "spmdx.comm.all_gather" stays as it is.
std::string_view base_name(std::string_view op) {
  if (op.starts_with("spmdx.")) return op;
  const size_t op_start = op.find('.');
  if (op_start == op.npos) return op;
  return op.substr(0, op.find('.', op_start + 1));
}

std::string collective_op(Collective kind) { return std::string(kCollectivePrefix) + std::string(name(kind)); }

Collective collective_kind(const Node& node) {
  const std::string_view op = node.call->op;
  if (!is_collective(node)) throw InternalError(node.call->op + " is not a collective");
  if (op == kPermuteRows || op == kCommHalo) return Collective::collective_permute;
  for (const CollectiveRow& row : all_collectives())
    if (op.substr(kCollectivePrefix.size()) == row.name) return row.kind;
  throw InternalError("unknown collective " + node.call->op);
}

}  // namespace spmdx
