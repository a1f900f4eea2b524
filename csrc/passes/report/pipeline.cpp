// SPDX-License-Identifier: Apache-2.0
// Pipeline: read off the places of a planned program's values.
#include "passes/report/pipeline.h"

#include <map>
#include <tuple>

#include "graph/places.h"
#include "passes/strategy/step_time.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

std::vector<StageSend> sends_between_stages(const Graph& graph) {
  std::map<std::tuple<int64_t, int64_t, SourceId>, StageSend> found;
  for (const Node& node : graph.nodes) {
    if (!changes_place(graph, node) || node.bytes == 0) continue;
    const Value& sent = graph.values[node.inputs[0]];
    const SourceId source = sent.producer == kNone ? node.source : source_of(graph, node.inputs[0]);
    const Place to = place_of(graph, node);
    StageSend& all = found[{sent.sharding->place.stage, to.whole() ? -1 : to.stage, source}];
    all = {sent.sharding->place.stage, to.whole() ? -1 : to.stage, all.bytes + node.bytes, all.count + 1, source};
  }
  std::vector<StageSend> sends;
  for (const auto& [key, send] : found) sends.push_back(send);
  return sends;
}

}  // namespace

std::optional<PipelineSummary> summarise_pipeline(const Graph& graph, const Topology& topology) {
  const Actions actions = actions_of(graph);
  if (actions.microbatches == 0) return std::nullopt;
  PipelineSummary all;
  all.schedule = graph.schedule.empty() ? "1f1b" : graph.schedule;
  all.microbatches = actions.microbatches;
  const std::vector<StageTimes> times = times_of(graph, actions, topology);
  all.simulation = simulate(graph, actions, times);
  for (const StageTimes& time : times)
    all.stages.push_back({0, time.forward, time.input_gradient + time.weight_gradient, 0});
  for (size_t stage = 0; stage < all.stages.size(); ++stage)
    if (const size_t rank = stage % static_cast<size_t>(actions.ranks); rank < all.simulation.in_flight.size())
      all.stages[stage].in_flight = all.simulation.in_flight[rank];
  for (const Input& input : graph.inputs) {
    if (!input.state && !input.physical) continue;  // data of this step
    const Value& value = graph.values[input.value];
    const ShardingRef& kept = input.annotation ? input.annotation : value.sharding;
    if (!kept->place.whole()) all.stages[kept->place.stage].parameter_bytes += bytes_on_a_device(value.type, kept);
  }
  all.sends = sends_between_stages(graph);
  return all;
}

int64_t longer_ns(const Graph& graph, const Topology& topology, int64_t microbatches) {
  Actions actions = actions_of(graph);
  if (actions.microbatches == 0) return 0;
  const std::vector<StageTimes> times = least_times_of(graph, actions, topology);
  const double send = send_ns(graph, actions, topology), planned = simulate(graph, actions, times, send).total;
  const int64_t more = microbatches - actions.microbatches;
  actions.microbatches = microbatches;
  const StepTime time = step_time(graph, topology, time_line(graph, topology));
  StepTime longer = time;
  longer.end_ns += static_cast<int64_t>(simulate(graph, actions, times, send).total - planned);
  for (const StageTimes& stage : times)
    longer.busy_ns +=
        static_cast<int64_t>(stage.forward + stage.input_gradient + stage.weight_gradient) * more / actions.ranks;
  return step_ns(graph, topology, longer) - step_ns(graph, topology, time);
}

}  // namespace spmdx
