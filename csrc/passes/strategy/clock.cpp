// SPDX-License-Identifier: Apache-2.0
// Clock: wires and devices, as the topology describes them.
#include "passes/strategy/clock.h"

#include "graph/places.h"
#include "passes/strategy/strategy.h"
#include "rules/lookup.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

int64_t wire_ns(const Graph& graph, const Node& node, const Topology& topology) {
  const Collective kind = collective_kind(node);
  if (node.sub_axes == 0 && node.bytes > 0)  // from another mesh: one message over the slowest wires
    return topology.cost_ns(kind, node.bytes, Group(2, topology.levels.size() - 1));
  const std::vector<uint8_t> levels = sub_axis_levels(graph.mesh, topology);
  if (changes_place(graph, node)) return topology.cost_ns(kind, node.bytes, Group(2, level_of(levels, node.sub_axes)));
  const Way way = node.native ? Way::native : Way::direct;
  return topology.cost_ns(way, std::ssize(node.inputs), kind, node.bytes, group_of(*graph.mesh, levels, node.sub_axes));
}

}  // namespace

int64_t clock_ns(const Graph& graph, const Node& node, const Topology& topology) {
  if (is_collective(node)) return wire_ns(graph, node, topology);
  if (is_host_copy(node)) {
    const int64_t bytes = bytes_on_a_device(node.call->outputs[0], graph.values[node.output].sharding);
    return topology.hardware.launch_ns + static_cast<int64_t>(topology.hardware.host_ps(bytes) / 1000);
  }
  static const MeshRef kOne = Mesh::make({0}, {1});
  const OpRuleRef rule = rule_for(node.call);
  const OpContext op{graph.mesh ? graph.mesh : kOne, node.call.get(), rule.get(), false};
  return time_of(op, strategy_of(op, graph, node), topology).device_ns;
}

}  // namespace spmdx
