// SPDX-License-Identifier: Apache-2.0
// Merged starts: inputs, and what state of an optimizer meets element by element.
#include "passes/search/merged_starts.h"

namespace spmdx {

std::vector<bool> merged_values(const Graph& graph, const std::vector<OpRuleRef>& rules) {
  std::vector<bool> merged(graph.values.size(), false);
  for (const Output& output : graph.outputs) merged[output.value] = output.tied != kNone;
  for (NodeId node = static_cast<NodeId>(graph.nodes.size()); node-- > 0;) {
    if (!merged[graph.nodes[node].output]) continue;
    const OpRule& rule = *rules[node];
    for (size_t i = 0; i < rule.inputs.size(); ++i)
      if (rule.inputs[i] == rule.outputs[0]) merged[graph.nodes[node].inputs[i]] = true;
  }
  for (const Input& input : graph.inputs) merged[input.value] = true;
  return merged;
}

}  // namespace spmdx
