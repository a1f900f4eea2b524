// SPDX-License-Identifier: Apache-2.0
// Order: nodes as the actions of a schedule run them, which is the order in which all processes come to them.
#include "passes/places/order.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "graph/rewrite.h"
#include "passes/places/actions.h"
#include "passes/places/emitter.h"

namespace spmdx {

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
