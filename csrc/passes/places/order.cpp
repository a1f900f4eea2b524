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
// what is made late would hold up what was made before it.
class Events {
 public:
  Events(const Graph& graph, const Actions& actions) : graph_(graph), ranks_(actions.ranks) {
    const std::vector<bool> needed = needed_nodes(graph);
    for (NodeId id = 0; id < graph.nodes.size(); ++id)
      if (const NodeAction& at = actions.of_node[id]; at.microbatch >= 0 && needed[id])
        nodes_[{at.stage, at.microbatch, at.kind}].push_back(id);
  }

  std::vector<Event> of(const Simulation& simulation, const std::vector<StageTimes>& times) {
    for (const TimedAction& timed : simulation.actions) {
      const Action& action = timed.action;
      if (action.kind != ActionKind::B) {
        add(timed, action.kind, timed.start, timed.end);
        continue;
      }
      // What other stages wait for comes first.
      const auto stage = static_cast<size_t>(stage_of(timed));
      const double half = timed.start + (stage < times.size() ? times[stage].input_gradient : 0);
      add(timed, ActionKind::I, timed.start, half);
      add(timed, ActionKind::W, half, timed.end);
    }
    std::ranges::stable_sort(events_, {}, [](const Event& event) { return std::pair(event.at, event.computes); });
    return std::move(events_);
  }

 private:
  int64_t stage_of(const TimedAction& timed) const { return timed.action.chunk * ranks_ + timed.rank; }

  void add(const TimedAction& timed, ActionKind kind, double start, double end) {
    const auto found = nodes_.find({stage_of(timed), timed.action.microbatch, kind});
    if (found == nodes_.end()) return;
    Event computed{start, true, {}}, sent{end, false, {}};
    for (const NodeId id : found->second)
      (changes_place(graph_, graph_.nodes[id]) ? sent : computed).nodes.push_back(id);
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
  for (const Event& event : Events(graph, actions).of(simulate(graph, actions, times, send), times))
    for (const NodeId id : event.nodes) emitter.emit(id);
  const std::vector<bool> needed = needed_nodes(graph);
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (needed[id]) emitter.emit(id);
  reorder(graph, emitter.order());
}

}  // namespace spmdx
