// SPDX-License-Identifier: Apache-2.0
// Choose natives: each collective of the plan goes the way that takes less time.
#include "graph/places.h"
#include "passes/passes.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

// Every device that holds a shard holds as much.
bool is_even(const Value& value) {
  const Sharding& sharding = *value.sharding;
  const int64_t shards = num_distinct(*sharding.mesh, sharding.dim_sub_axes());
  return max_local_numel(sharding, value.type.shape) * shards == numel(value.type.shape);
}

// Backends have it for these parts and this dtype.
bool fits(const Graph& graph, const Node& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value &from = graph.values[node.inputs[i]], &to = graph.values[node.output + i];
    if (!is_even(from) || !is_even(to)) return false;
    if (traits_of(collective_kind(node)).reduces && !adds_natively(from.type.dtype, from.sharding->reduction))
      return false;
  }
  return true;
}

bool is_native(const Graph& graph, const Node& node, const Topology& topology,
               const std::vector<uint8_t>& sub_axis_levels) {
  const Collective kind = collective_kind(node);
  if (!traits_of(kind).native || node.sub_axes == 0 || changes_place(graph, node) || !fits(graph, node)) return false;
  const Group group = group_of(*graph.mesh, sub_axis_levels, node.sub_axes);
  return topology.way_of(std::ssize(node.inputs), kind, node.bytes, group) == Way::native;
}

}  // namespace

void choose_natives(Graph& graph, const CompileOptions& options) {
  if (!graph.mesh) return;
  const std::vector<uint8_t> levels = sub_axis_levels(graph.mesh, options.topology);
  for (Node& node : graph.nodes) node.native = is_collective(node) && is_native(graph, node, options.topology, levels);
}

}  // namespace spmdx
