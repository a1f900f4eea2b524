// SPDX-License-Identifier: Apache-2.0
// Actions: from the phases of a recorded program, or from what it reads again and again.
#include "passes/places/actions.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "graph/node_kind.h"
#include "graph/places.h"
#include "passes/pipeline/make_schedule.h"
#include "passes/strategy/clock.h"

namespace spmdx {
namespace {

class Labels {
 public:
  explicit Labels(const Graph& graph) : graph_(graph), axis_(graph.kinds.empty() ? stage_axis(graph) : -1) {}

  Actions run() {
    Actions& all = actions_;
    all.of_node.resize(graph_.nodes.size());
    if (axis_ < 0) return std::move(all);
    all.ranks = graph_.mesh->axes()[axis_].size;
    for (const Value& value : graph_.values)
      if (!value.sharding->place.whole()) all.stages = std::max(all.stages, value.sharding->place.stage + 1);
    for (const Node& node : graph_.nodes) {
      all.backward |= is_backward(node.recorded.phase.number);
      if (is_backward(node.recorded.phase.number))
        last_backward_ = std::max(last_backward_, node.recorded.phase.number);
    }
    all.backward ? by_phase() : by_first_reader();
    for (NodeId id = 0; id < graph_.nodes.size(); ++id)
      if (all.of_node[id].microbatch >= 0) all.of_node[id].stage = stage_of(graph_.nodes[id]);
    find_weight_gradients();
    all.microbatches = std::max<int64_t>(all.microbatches, 1);
    return std::move(all);
  }

 private:
  // A send is part of the work on the stage that it leaves.
  int64_t stage_of(const Node& node) const {
    const Place place =
        changes_place(graph_, node) ? graph_.values[node.inputs[0]].sharding->place : place_of(graph_, node);
    return place.whole() ? -1 : place.stage;
  }

  // What follows the last backward pass, and what is made of results of backward passes outside of them, is of no
  // microbatch.
  void by_phase() {
    std::vector<bool> after(graph_.values.size(), false);
    std::vector<uint32_t> passes;  // phases of backward passes, ascending
    for (const Node& node : graph_.nodes)
      if (is_backward(node.recorded.phase.number) && (passes.empty() || passes.back() != node.recorded.phase.number))
        passes.push_back(node.recorded.phase.number);
    std::sort(passes.begin(), passes.end());
    passes.erase(std::unique(passes.begin(), passes.end()), passes.end());
    actions_.microbatches = static_cast<int64_t>(passes.size());
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      bool follows = false;
      for (ValueId value : node.inputs) follows |= after[value];
      const bool backward = is_backward(node.recorded.phase.number);
      for (size_t r = 0; r < node.call->outputs.size(); ++r) after[node.output + r] = follows || backward;
      if (node.recorded.phase.number == 0 || node.recorded.phase.number > last_backward_ || (follows && !backward))
        continue;
      const auto at = std::lower_bound(passes.begin(), passes.end(), node.recorded.phase.number);
      actions_.of_node[id].microbatch = at - passes.begin();
      actions_.of_node[id].kind = backward ? ActionKind::I : ActionKind::F;
    }
  }

  void by_first_reader() {
    std::vector<bool> held(graph_.values.size(), false);  // computed from what lies on a stage, and from nothing else
    for (const Input& input : graph_.inputs) held[input.value] = !graph_.values[input.value].sharding->place.whole();
    std::pair<std::string_view, std::vector<ValueId>> first;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      std::vector<ValueId> state;
      std::copy_if(node.inputs.begin(), node.inputs.end(), std::back_inserter(state),
                   [&](ValueId v) { return held[v]; });
      if (!state.empty() && state.size() == node.inputs.size())
        for (size_t r = 0; r < node.call->outputs.size(); ++r) held[node.output + r] = true;
      else if (!state.empty() && (first.second.empty() || first == std::pair{std::string_view(node.call->op), state}))
        first = {node.call->op, state}, ++actions_.microbatches;
      actions_.of_node[id].microbatch = actions_.microbatches - 1;
    }
  }

  // Against the order: a backward op is needed at once if a later one of its microbatch is that leads to another stage.
  void find_weight_gradients() {
    std::vector<bool> urgent(graph_.nodes.size(), false);
    for (NodeId id = static_cast<NodeId>(graph_.nodes.size()); id-- > 0;) {
      NodeAction& at = actions_.of_node[id];
      if (at.microbatch < 0 || at.kind != ActionKind::I) continue;
      const Node& node = graph_.nodes[id];
      if (changes_place(graph_, node) && graph_.values[node.output].sharding->place.stage < at.stage) urgent[id] = true;
      if (!urgent[id]) {
        at.kind = ActionKind::W;
        continue;
      }
      for (const ValueId value : node.inputs)
        if (const NodeId producer = graph_.values[value].producer;
            producer != kNone && actions_.of_node[producer].microbatch == at.microbatch)
          urgent[producer] = true;
    }
  }

  const Graph& graph_;
  const int axis_;
  uint32_t last_backward_ = 0;
  Actions actions_;
};

// Forwards only.
Simulation wave(const Actions& actions, const std::vector<StageTimes>& times) {
  Simulation result;
  std::vector<double> free_at(static_cast<size_t>(actions.ranks), 0),
      ready(static_cast<size_t>(actions.microbatches), 0);
  for (int64_t turn = 0; turn < actions.microbatches + actions.stages; ++turn)
    for (int64_t stage = 0; stage < actions.stages; ++stage) {
      const int64_t microbatch = turn - stage, rank = stage % actions.ranks;
      if (microbatch < 0 || microbatch >= actions.microbatches) continue;
      const double start = std::max(free_at[rank], ready[microbatch]), end = start + times[stage].forward;
      result.actions.push_back(
          {static_cast<int32_t>(rank),
           {ActionKind::F, static_cast<int32_t>(stage / actions.ranks), static_cast<int32_t>(microbatch)},
           start,
           end});
      free_at[rank] = ready[microbatch] = end;
      result.total = std::max(result.total, end);
    }
  return result;
}

using Part = double StageTimes::*;
constexpr Part kParts[] = {&StageTimes::forward, &StageTimes::input_gradient, &StageTimes::weight_gradient};

Part part_of(ActionKind kind) {
  return kind == ActionKind::F   ? &StageTimes::forward
         : kind == ActionKind::W ? &StageTimes::weight_gradient
                                 : &StageTimes::input_gradient;
}

StageTimes mean(const std::vector<StageTimes>& each) {
  StageTimes all{0, 0, 0};
  for (const StageTimes& times : each)
    for (const Part part : kParts) all.*part += times.*part / static_cast<double>(each.size());
  return all;
}

StageTimes least(const std::vector<StageTimes>& each) {
  const auto total = [](const StageTimes& times) {
    return times.forward + times.input_gradient + times.weight_gradient;
  };
  return *std::ranges::min_element(each, {}, total);
}

// By stage and microbatch.
std::vector<std::vector<StageTimes>> all_times(const Graph& graph, const Actions& actions, const Topology& topology) {
  const auto count = static_cast<size_t>(std::max<int64_t>(actions.microbatches, 1));
  std::vector<std::vector<StageTimes>> each(static_cast<size_t>(actions.stages),
                                            std::vector<StageTimes>(count, StageTimes{0, 0, 0}));
  std::unordered_map<NodeKind, int64_t, HashOfNodeKind> known;  // layers are alike, and so are microbatches
  const auto clock = [&](const Node& node) {
    if (is_collective(node)) return clock_ns(graph, node, topology);
    const auto [at, fresh] = known.try_emplace(kind_of(graph, node));
    return fresh ? at->second = clock_ns(graph, node, topology) : at->second;
  };
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const NodeAction& at = actions.of_node[id];
    if (at.microbatch < 0 || at.stage < 0 || changes_place(graph, graph.nodes[id])) continue;
    StageTimes& stage = each[static_cast<size_t>(at.stage)][static_cast<size_t>(at.microbatch)];
    stage.*part_of(at.kind) += static_cast<double>(clock(graph.nodes[id]));
  }
  return each;
}

[[noreturn]] void refuse(const Schedule& schedule, const Actions& actions) {
  const auto numbers = [](int64_t ranks, int64_t stages, int64_t microbatches) {
    return std::to_string(ranks) + " ranks, " + std::to_string(stages) + " stages and " + std::to_string(microbatches) +
           " microbatches";
  };
  throw ShardingError(
      "the schedule is for " +
      numbers(static_cast<int64_t>(schedule.ranks.size()), schedule.num_stages(), schedule.num_microbatches()) +
      ", the step has " + numbers(actions.ranks, actions.stages, actions.microbatches) +
      ". Expected the same of both. Write a schedule for these, or name one, as '1f1b'.");
}

}  // namespace

Actions actions_of(const Graph& graph) { return Labels(graph).run(); }

std::vector<StageTimes> times_of(const Graph& graph, const Actions& actions, const Topology& topology) {
  std::vector<StageTimes> times;
  for (const std::vector<StageTimes>& stage : all_times(graph, actions, topology)) times.push_back(mean(stage));
  return times;
}

std::vector<StageTimes> least_times_of(const Graph& graph, const Actions& actions, const Topology& topology) {
  std::vector<StageTimes> times;
  for (const std::vector<StageTimes>& stage : all_times(graph, actions, topology)) times.push_back(least(stage));
  return times;
}

double send_ns(const Graph& graph, const Actions& actions, const Topology& topology) {
  int64_t ns = 0, count = 0;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (actions.of_node[id].microbatch < 0 || !changes_place(graph, graph.nodes[id])) continue;
    ns += clock_ns(graph, graph.nodes[id], topology);
    ++count;
  }
  return count ? static_cast<double>(ns) / static_cast<double>(count) : 0;
}

Simulation simulate(const Graph& graph, const Actions& actions, const std::vector<StageTimes>& times, double send) {
  if (!actions.backward) return wave(actions, times);
  const int64_t chunks = (actions.stages + actions.ranks - 1) / actions.ranks;
  std::string kind = graph.schedule.empty() ? "1f1b" : graph.schedule;
  const bool named = is_name(kind);
  const bool goes_round = kind.starts_with("interleaved");
  if (named && goes_round != (chunks > 1)) kind = chunks > 1 ? "interleaved:" + std::to_string(chunks) : "1f1b";
  const Schedule schedule = named ? make_schedule(kind, actions.ranks, actions.microbatches) : parse_schedule(kind);
  if (static_cast<int64_t>(schedule.ranks.size()) != actions.ranks || schedule.num_stages() < actions.stages ||
      schedule.num_microbatches() != actions.microbatches)
    refuse(schedule, actions);
  std::vector<StageTimes> all = times;
  all.resize(static_cast<size_t>(schedule.num_stages()), StageTimes{0, 0, 0});
  return simulate(in_halves(schedule), all, send);
}

}  // namespace spmdx
