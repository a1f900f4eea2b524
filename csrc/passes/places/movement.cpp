// SPDX-License-Identifier: Apache-2.0
// Movements, by the rules of ops.
#include "passes/places/movement.h"

#include "rules/lookup.h"
#include "rules/rule/rule.h"

namespace spmdx {

const Node* movement_of(const Graph& graph, ValueId value) {
  const NodeId producer = graph.values[value].producer;
  if (producer == kNone) return nullptr;
  const Node& node = graph.nodes[producer];
  if (is_collective(node) || node.inputs.size() != 1 || node.call->outputs.size() != 1) return nullptr;
  if (numel(node.call->inputs[0].shape) > numel(node.call->outputs[0].shape)) return nullptr;
  return rule_for(node.call)->linearity == Linearity::movement ? &node : nullptr;
}

}  // namespace spmdx
