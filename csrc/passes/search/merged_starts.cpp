// SPDX-License-Identifier: Apache-2.0
// Merged starts: inputs, and what state of an optimizer meets element by element.
#include "passes/search/merged_starts.h"

#include "passes/strategy/elementwise.h"

namespace spmdx {

std::vector<bool> merged_values(const Graph& graph, const std::vector<OpRuleRef>& rules) {
  const std::vector<const Output*> state =
      becomes_element_by_element(graph, rules, [](const Output& output) { return output.tied != kNone; });
  std::vector<bool> merged(state.begin(), state.end());
  for (const Input& input : graph.inputs) merged[input.value] = true;
  return merged;
}

}  // namespace spmdx
