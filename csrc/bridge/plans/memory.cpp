// SPDX-License-Identifier: Apache-2.0
// Memory of plans, in words.
#include "bridge/plans/memory.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "bridge/plans/plan_warnings.h"
#include "bridge/python/source.h"
#include "bridge/recorder/engine.h"
#include "graph/places.h"
#include "passes/strategy/timeline.h"
#include "sharding/notation.h"

namespace spmdx::bridge {
namespace {

constexpr size_t kNamed = 3;  // holders that an error names

std::atomic<int64_t> limit{kNoLimit};

// As "1,234,567".
std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

std::string largest(const Graph& graph, const MemoryUseOfRun& use) {
  const std::vector<Holder> holders = holders_of(graph, use);
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, holders.size()); ++i) {
    const Holder& holder = holders[i];
    text += (i ? "; " : "") + grouped(holder.bytes) + " by " + holder.type + " of " + holder.op + " (" +
            std::string(name(holder.kind)) + (holder.source.empty() ? "" : ", " + holder.source) + ")";
  }
  return text;
}

// "a device", or where there are stages "a device of stage 2".
std::string which_device(const Graph& graph, int64_t coordinate) {
  const bool staged = std::ranges::any_of(
      graph.values, [](const Value& value) { return value.sharding && !value.sharding->place.whole(); });
  return staged ? "a device of stage " + std::to_string(coordinate) : "a device";
}

}  // namespace

std::vector<Holder> holders_of(const Graph& graph, const MemoryUseOfRun& use) {
  const std::vector<MemoryKind> kinds = memory_kinds(graph);
  std::vector<const Input*> inputs(graph.values.size(), nullptr);
  for (const Input& input : graph.inputs) inputs[input.value] = &input;
  std::vector<Holder> holders;
  for (const Held& held : use.held) {
    const Value& value = graph.values[held.value];
    const Input* input = inputs[held.value];
    std::string op = !input ? label(graph.nodes[value.producer]) : "an input";
    if (input && !input->name.empty()) op = "input \"" + input->name + "\"";
    holders.push_back({kinds[held.value], std::move(op), str(value.type, value.sharding), held.bytes,
                       source_text(input ? input->source : source_of(graph, held.value))});
  }
  return holders;
}

std::string worst_moment(const Graph& graph, const MemoryUseOfRun& use) {
  if (use.at == kNone) return "";
  const std::string line = source_text(graph.nodes[use.at].source);
  return label(graph.nodes[use.at]) + (line.empty() ? "" : " at " + line);
}

void set_memory_limit(int64_t bytes, std::optional<bool> recompute) {
  CompileOptions options = engine().options();
  const bool recomputes = recompute.value_or(options.recomputes);
  if (options.memory_limit == bytes && options.recomputes == recomputes) return;  // plans stay
  options.memory_limit = limit = bytes;
  options.recomputes = recomputes;
  engine().set_options(std::move(options));
}
int64_t memory_limit() { return limit; }

void require_fits(const Plan& plan) {
  const PeakBytes peak = plan.executable->peak();
  const Graph& graph = plan.executable->graph();
  if (peak.bytes <= limit || plans_are_trials() || std::ranges::all_of(graph.nodes, is_collective)) return;
  const MemoryUseOfRun use = predict_memory(graph, peak);
  const std::string line = source_text(current_source()), moment = worst_moment(graph, use);
  throw ShardingError((line.empty() ? "" : line + ": ") + "the step that ends here needs " + grouped(peak.bytes) +
                      " bytes on " + which_device(graph, peak.coordinate) + (moment.empty() ? "" : ", in " + moment) +
                      ", and the memory limit is " + grouped(limit) +
                      ". Most of it is held so: " + largest(graph, use) +
                      ". Expected a step that fits. Cut these further by spmdx.mark_sharding, take smaller batches, "
                      "checkpoint what waits for the backward pass (torch.utils.checkpoint), or raise the limit by "
                      "spmdx.set_memory_limit.");
}

}  // namespace spmdx::bridge
