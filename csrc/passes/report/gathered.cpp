// SPDX-License-Identifier: Apache-2.0
#include "passes/report/gathered.h"

#include <algorithm>

#include "passes/report/memory_kinds.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

constexpr uint8_t kNoPass = 0, kForward = 1, kBackward = 2;

// By value: the passes that read it, or what is made of it by moving it.
std::vector<uint8_t> readers_of(const Graph& graph, const std::vector<MemoryKind>& kinds) {
  std::vector<uint32_t> phase(graph.nodes.size());
  uint32_t last = 0;  // backward pass
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    phase[id] = node.recorded.phase.number;
    for (const ValueId value : node.inputs)
      if (const NodeId producer = graph.values[value].producer; node.recorded.phase.number == 0 && producer != kNone)
        phase[id] = std::max(phase[id], phase[producer]);
    if (is_backward(phase[id])) last = std::max(last, phase[id]);
  }
  std::vector<uint8_t> readers(graph.values.size(), kNoPass);
  for (NodeId id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;) {
    const Node& node = graph.nodes[id];
    const bool moved = !node.call->outputs.empty() && kinds[node.output] == MemoryKind::gathered;
    const uint8_t own = is_backward(phase[id]) ? kBackward : phase[id] < last ? kForward : kNoPass;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      readers[node.inputs[i]] |= moved ? readers[node.output + (is_collective(node) ? i : 0)] : own;
  }
  return readers;
}

}  // namespace

std::vector<GatheredCopy> gathered_copies(const Graph& graph) {
  const std::vector<MemoryKind> kinds = memory_kinds(graph);
  const std::vector<uint8_t> readers = readers_of(graph, kinds);
  std::vector<GatheredCopy> copies;
  for (const Node& node : graph.nodes) {
    if (!is_collective(node) || collective_kind(node) != Collective::all_gather) continue;
    for (ValueId made = node.output; made < node.output + node.inputs.size(); ++made) {
      if (kinds[made] != MemoryKind::gathered || readers[made] == kNoPass) continue;
      const int64_t held = bytes_on_a_device(graph.values[made].type, graph.values[made].sharding);
      copies.push_back({wire_bytes(Collective::all_gather, held, graph.mesh->group_size(node.sub_axes)),
                        (readers[made] & kForward) != 0, (readers[made] & kBackward) != 0});
    }
  }
  return copies;
}

}  // namespace spmdx
