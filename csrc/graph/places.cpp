// SPDX-License-Identifier: Apache-2.0
// Places of a graph, as its annotations say, and as its values have them.
#include "graph/places.h"

#include "base/error.h"
#include "sharding/notation.h"

namespace spmdx {
namespace {

std::string describe(const Graph& graph, ValueId value, const ShardingRef& sharding) {
  return str(graph.values[value].type, sharding);
}

}  // namespace

int stage_axis(const Graph& graph) {
  if (!graph.mesh) return -1;
  int axis = graph.kinds.empty() ? -1 : graph.mesh->axis_index(graph.kinds);
  std::string first = "devices of several kinds";
  const auto add = [&](ValueId value, const ShardingRef& sharding) {
    const Place place = sharding ? sharding->place : Place{};
    if (place.whole() || place.axis == axis) return;
    if (axis >= 0)
      throw ShardingError("one step has stages along two axes, " + first + " and " + describe(graph, value, sharding) +
                          ". Expected one stage axis. Mark all stages along one axis of " + graph.mesh->str() + ".");
    axis = place.axis;
    first = describe(graph, value, sharding);
  };
  const auto check_cuts = [&](ValueId value, const ShardingRef& sharding) {
    if (!sharding || *sharding->mesh != *graph.mesh) return;
    if (!(sharding->used() & sub_axis_set(graph.mesh->sub_axes_of_axis(axis)))) return;
    throw ShardingError("axis '" + graph.mesh->axes()[axis].name + "' holds the stages of " + first + " and cuts " +
                        describe(graph, value, sharding) +
                        ". Expected an axis to hold stages or to cut dims, not both in one step. Cut by another axis.");
  };
  const auto each = [&](auto&& visit) {
    for (const Input& input : graph.inputs) {
      visit(input.value, input.annotation);
      if (!lies_on_another_mesh(graph, input)) visit(input.value, input.physical);
    }
    for (const Constraint& constraint : graph.constraints) visit(constraint.value, constraint.sharding);
    for (const Output& output : graph.outputs) visit(output.value, output.annotation);
  };
  each(add);
  if (axis >= 0) each(check_cuts);
  return axis;
}

SubAxisSet stage_sub_axes(const Graph& graph) {
  const int axis = stage_axis(graph);
  return axis < 0 ? 0 : sub_axis_set(graph.mesh->sub_axes_of_axis(axis));
}

bool lies_on_another_mesh(const Graph& graph, const Input& input) {
  return comes_from_another_mesh(graph, input) && !input.physical->place.whole();
}

Place place_of(const Graph& graph, const Node& node) {
  if (node.call->outputs.empty()) return {};
  const ShardingRef& sharding = graph.values[node.output].sharding;
  return sharding ? sharding->place.on_device() : Place{};
}

bool changes_place(const Graph& graph, const Node& node) {
  if (!is_collective(node)) return false;
  const ShardingRef& from = graph.values[node.inputs[0]].sharding;
  return from && !from->place.whole() && from->place != place_of(graph, node);
}

}  // namespace spmdx
