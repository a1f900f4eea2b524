// SPDX-License-Identifier: Apache-2.0
// Elementwise: backward from outputs through ops whose operands have the factors of the result.
#include "passes/strategy/elementwise.h"

namespace spmdx {

std::vector<const Output*> becomes_element_by_element(const Graph& graph, const std::vector<OpRuleRef>& rules,
                                                      const std::function<bool(const Output&)>& outputs) {
  std::vector<const Output*> becomes(graph.values.size(), nullptr);
  for (const Output& output : graph.outputs)
    if (outputs(output)) becomes[output.value] = &output;
  for (NodeId node = static_cast<NodeId>(graph.nodes.size()); node-- > 0;) {
    const Output* const output = becomes[graph.nodes[node].output];
    const OpRule& rule = *rules[node];
    for (size_t i = 0; output && i < rule.inputs.size(); ++i) {
      const Output*& operand = becomes[graph.nodes[node].inputs[i]];
      if (!operand && rule.inputs[i] == rule.outputs[0]) operand = output;
    }
  }
  return becomes;
}

}  // namespace spmdx
