// SPDX-License-Identifier: Apache-2.0
// Places of a graph: its stage axis, where nodes run, and which of them send.
#pragma once
#include "graph/graph.h"

namespace spmdx {

// The stage axis of a graph: that of its kinds, or of the places of its inputs, outputs and constraints; -1: none.
// Throws ShardingError where there are two such axes, or where the axis cuts a dim as well.
int stage_axis(const Graph& graph);
// Its sub-axes; none if there is no stage axis.
SubAxisSet stage_sub_axes(const Graph& graph);

// Whether the input's data lie on a stage of another mesh than that of the graph, from an earlier step.
bool lies_on_another_mesh(const Graph& graph, const Input& input);

// Where a node runs, once every value has its sharding: on the devices where its results are, or those of their hosts.
Place place_of(const Graph& graph, const Node& node);
// Whether the node brings its operand from one place to another.
bool changes_place(const Graph& graph, const Node& node);

// Two ops of an operand that becomes their result elsewhere: from the memory of a host to that of its device, and back.
constexpr std::string_view kToDevice = "spmdx.to_device", kToHost = "spmdx.to_host";
inline bool is_host_copy(const Node& node) { return node.call->op == kToDevice || node.call->op == kToHost; }

}  // namespace spmdx
