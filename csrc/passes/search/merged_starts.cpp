// SPDX-License-Identifier: Apache-2.0
// Merged starts: inputs, and what state of an optimizer meets element by element.
#include "passes/search/merged_starts.h"

namespace spmdx {

MergedStarts::MergedStarts(const Assignment& assignment) : assignment_(assignment) {
  const Graph& graph = assignment.graph();
  std::vector<bool> state(graph.values.size(), false);
  for (const Output& output : graph.outputs) state[output.value] = output.tied != kNone;
  for (NodeId node = static_cast<NodeId>(graph.nodes.size()); node-- > 0;) {
    if (!state[graph.nodes[node].output]) continue;
    const OpRule& rule = *assignment.context(node).rule;
    for (size_t i = 0; i < rule.inputs.size(); ++i)
      if (rule.inputs[i] == rule.outputs[0]) state[graph.nodes[node].inputs[i]] = true;
  }
  for (ValueId value = 0; value < state.size(); ++value)
    if (state[value] || graph.values[value].producer == kNone) values_.push_back(value);
}

int64_t MergedStarts::ns() const {
  int64_t moved = 0;
  for (const ValueId value : values_) moved += assignment_.moves_ns(value) > 0;
  return moved * assignment_.start_ns();
}

}  // namespace spmdx
