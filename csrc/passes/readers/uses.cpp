// SPDX-License-Identifier: Apache-2.0
// Uses, counted once for each value.
#include "passes/readers/uses.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace spmdx {

Uses::Uses(const Graph& graph) : read_ends_(graph.values.size(), 0) {
  for (const Node& node : graph.nodes)
    for (const ValueId value : node.inputs) ++read_ends_[value];
  std::partial_sum(read_ends_.begin(), read_ends_.end(), read_ends_.begin());
  reads_.resize(read_ends_.empty() ? 0 : read_ends_.back());
  std::vector<uint32_t> count(graph.values.size(), 0);
  for (NodeId node = 0; node < graph.nodes.size(); ++node) {
    const std::vector<ValueId>& operands = graph.nodes[node].inputs;
    for (uint32_t i = 0; i < operands.size(); ++i) {
      const uint32_t position = count[operands[i]]++;
      reads_[(operands[i] ? read_ends_[operands[i] - 1] : 0) + position] = {node, i};
      uses_.push_back({operands[i], i, position});
    }
    std::sort(uses_.end() - static_cast<long>(operands.size()), uses_.end(),
              [](const Use& a, const Use& b) { return std::tie(a.value, a.position) < std::tie(b.value, b.position); });
    use_ends_.push_back(static_cast<uint32_t>(uses_.size()));
  }
}

}  // namespace spmdx
