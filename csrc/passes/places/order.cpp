// SPDX-License-Identifier: Apache-2.0
// Order: nodes as the actions of a schedule run them, which is the order in which all processes come to them.
#include "passes/places/order.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "graph/places.h"
#include "graph/rewrite.h"
#include "passes/places/actions.h"
#include "passes/places/emitter.h"

namespace spmdx {
namespace {

// Nodes of one action that compute, or that send what was computed.
struct Event {
  double at;
  bool computes;  // sends come before what begins at the same time
  std::vector<NodeId> nodes;
};

// When the nodes of a schedule's actions run. What is sent has its place when it is made: a link has one order, and
// what is made late would hold up what was made before it. What is there from the beginning is sent first.
class Events {
 public:
  Events(const Graph& graph, const Actions& actions) : graph_(graph), ranks_(actions.ranks) {
    const std::vector<bool> needed = needed_nodes(graph);
    Event begin{0, false, {}};
    for (NodeId id = 0; id < graph.nodes.size(); ++id) {
      const NodeAction& at = actions.of_node[id];
      if (at.microbatch < 0 || !needed[id]) continue;
      const bool is_there = is_send(id) && graph.values[graph.nodes[id].inputs[0]].producer == kNone;
      (is_there ? begin.nodes : nodes_[{at.stage, at.microbatch, at.kind}]).push_back(id);
    }
    events_.push_back(std::move(begin));
  }

  std::vector<Event> of(const Simulation& simulation) {
    for (const TimedAction& timed : simulation.actions) add(timed);
    std::ranges::stable_sort(events_, {}, [](const Event& event) { return std::pair(event.at, event.computes); });
    return std::move(events_);
  }

 private:
  bool is_send(NodeId id) const { return changes_place(graph_, graph_.nodes[id]); }

  void add(const TimedAction& timed) {
    const Action& action = timed.action;
    const auto found = nodes_.find({action.chunk * ranks_ + timed.rank, action.microbatch, action.kind});
    if (found == nodes_.end()) return;
    Event computed{timed.start, true, {}}, sent{timed.end, false, {}};
    for (const NodeId id : found->second) (is_send(id) ? sent : computed).nodes.push_back(id);
    events_.push_back(std::move(computed));
    events_.push_back(std::move(sent));
  }

  const Graph& graph_;
  const int64_t ranks_;
  std::map<std::tuple<int64_t, int64_t, ActionKind>, std::vector<NodeId>> nodes_;
  std::vector<Event> events_;
};

}  // namespace

void order_by_schedule(Graph& graph, const CompileOptions& options) {
  const Actions actions = actions_of(graph);
  if (actions.microbatches == 0) return;
  const std::vector<StageTimes> times = times_of(graph, actions, options.topology);
  const double send = send_ns(graph, actions, options.topology);
  Emitter emitter(graph);
  for (const Event& event : Events(graph, actions).of(simulate(graph, actions, times, send)))
    for (const NodeId id : event.nodes) emitter.emit(id);
  const std::vector<bool> needed = needed_nodes(graph);
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (needed[id]) emitter.emit(id);
  reorder(graph, emitter.order());
}

}  // namespace spmdx
