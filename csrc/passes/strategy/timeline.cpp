// SPDX-License-Identifier: Apache-2.0
// Time line: nodes in program order on the lanes of kernels and wire, each as soon as its operands allow.
#include "passes/strategy/timeline.h"

#include <algorithm>

#include "graph/places.h"
#include "passes/strategy/clock.h"

namespace spmdx {
namespace {

// When lanes are free: of kernels and of the links of each level, at every coordinate of the stage axis.
class Lanes {
 public:
  Lanes(const Graph& graph, const Topology& topology)
      : graph_(graph), topology_(topology), per_rank_(1 + topology.levels.size()) {
    if (const int axis = axis_of_places(graph); axis >= 0) ranks_ = graph.mesh->axes()[axis].size;
    if (graph.mesh) levels_ = sub_axis_levels(graph.mesh, topology);
    slowest_ = topology.levels.size() - 1;
    free_at_.assign(static_cast<size_t>(ranks_) * per_rank_, 0);
  }
  // Where the node runs; start and end are those of no lanes. `ns`: how long it takes.
  Span span_of(NodeId id, const Node& node, int64_t ns, int64_t ready) const {
    Span span{.node = id, .wire = is_collective(node) && ns > 0, .start_ns = ready, .end_ns = ready + ns};
    span.rank = rank_of(place_of(graph_, node));
    if (changes_place(graph_, node)) span.from = rank_of(graph_.values[node.inputs[0]].sharding->place);
    if (span.wire) span.level = node.sub_axes ? level_of(levels_, node.sub_axes) : slowest_;
    return span;
  }
  // The span as soon as its lanes are free, which are its own until it ends. Kernels of its devices wait as long as
  // links need the processor.
  Span take(Span span) {
    const int64_t ns = span.end_ns - span.start_ns;
    const size_t lane = span.wire ? 1 + span.level : kKernels;
    for_each(span, lane, [&](int64_t& free_at) { span.start_ns = std::max(span.start_ns, free_at); });
    span.end_ns = span.start_ns + ns;
    for_each(span, lane, [&](int64_t& free_at) { free_at = span.end_ns; });
    if (span.wire)
      for_each(span, kKernels, [&](int64_t& free_at) { free_at += topology_.levels[span.level].busy_ns(ns); });
    return span;
  }

 private:
  int64_t rank_of(const Place& place) const { return place.whole() ? -1 : place.stage % ranks_; }
  template <typename Visit>
  void for_each(const Span& span, size_t lane, Visit&& visit) {
    for (int64_t rank = 0; rank < ranks_; ++rank)
      if (span.rank < 0 || rank == span.rank || rank == span.from)
        visit(free_at_[static_cast<size_t>(rank) * per_rank_ + lane]);
  }

  static constexpr size_t kKernels = 0;  // their lane; behind it are those of links
  const Graph& graph_;
  const Topology& topology_;
  size_t per_rank_, slowest_ = 0;
  int64_t ranks_ = 1;
  std::vector<uint8_t> levels_;
  std::vector<int64_t> free_at_;
};

}  // namespace

std::vector<Span> time_line(const Graph& graph, const Topology& topology) {
  std::vector<Span> spans;
  std::vector<int64_t> ready(graph.values.size(), 0);
  Lanes lanes(graph, topology);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    const int64_t time = clock_ns(graph, node, topology);
    int64_t start = 0;
    for (ValueId input : node.inputs) start = std::max(start, ready[input]);
    Span span = lanes.span_of(id, node, time, start);
    if (time > 0) spans.push_back(span = lanes.take(span));
    for (size_t r = 0; r < node.call->outputs.size(); ++r) ready[node.output + r] = span.end_ns;
  }
  return spans;
}

int axis_of_places(const Graph& graph) {
  for (const Node& node : graph.nodes)
    if (const Place place = place_of(graph, node); !place.whole()) return place.axis;
  return -1;
}

int64_t last_end_ns(const std::vector<Span>& spans) {
  int64_t end = 0;
  for (const Span& span : spans) end = std::max(end, span.end_ns);
  return end;
}

std::string label(const Node& node) {
  return is_collective(node) ? std::string(name(collective_kind(node))) : node.call->op;
}

}  // namespace spmdx
