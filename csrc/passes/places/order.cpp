// SPDX-License-Identifier: Apache-2.0
// Order: nodes as the actions of a schedule run them, which is the order in which all processes come to them.
#include "passes/places/order.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "graph/rewrite.h"
#include "passes/places/actions.h"

namespace spmdx {
namespace {

// Lists nodes, what they need before them.
class Emitter {
 public:
  explicit Emitter(const Graph& graph) : graph_(graph), done_(graph.nodes.size(), false) {}

  void emit(NodeId id) {
    open_.assign(1, id);
    while (!open_.empty()) {
      const NodeId node = open_.back();
      const NodeId missing = done_[node] ? kNone : first_missing(node);
      if (missing != kNone) {
        open_.push_back(missing);
        continue;
      }
      open_.pop_back();
      if (done_[node]) continue;
      done_[node] = true;
      order_.push_back(node);
    }
  }

  const std::vector<NodeId>& order() const { return order_; }

 private:
  NodeId first_missing(NodeId id) const {
    for (ValueId value : graph_.nodes[id].inputs) {
      const NodeId producer = graph_.values[value].producer;
      if (producer != kNone && !done_[producer]) return producer;
    }
    return kNone;
  }

  const Graph& graph_;
  std::vector<bool> done_;
  std::vector<NodeId> open_, order_;
};

}  // namespace

void order_by_schedule(Graph& graph, const CompileOptions& options) {
  const Actions actions = actions_of(graph);
  if (actions.microbatches == 0) return;
  std::map<std::tuple<int64_t, int64_t, ActionKind>, std::vector<NodeId>> nodes;
  const std::vector<bool> needed = needed_nodes(graph);
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (const NodeAction& at = actions.of_node[id]; at.microbatch >= 0 && needed[id])
      nodes[{at.stage, at.microbatch, at.kind}].push_back(id);
  Emitter emitter(graph);
  const auto emit = [&](int64_t stage, int64_t microbatch, ActionKind kind) {
    const auto found = nodes.find({stage, microbatch, kind});
    if (found == nodes.end()) return;
    for (NodeId id : found->second) emitter.emit(id);
  };
  const std::vector<StageTimes> times = times_of(graph, actions, options.topology);
  for (const TimedAction& timed : simulate(graph, actions, times).actions) {
    const Action& action = timed.action;
    const int64_t stage = action.chunk * actions.ranks + timed.rank;
    if (action.kind != ActionKind::B) {
      emit(stage, action.microbatch, action.kind);
      continue;
    }
    emit(stage, action.microbatch, ActionKind::I);  // what other stages wait for comes first
    emit(stage, action.microbatch, ActionKind::W);
  }
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (needed[id]) emitter.emit(id);
  reorder(graph, emitter.order());
}

}  // namespace spmdx
