// SPDX-License-Identifier: Apache-2.0
// Submit: plans of all parts first, so that nothing is queued where one of them cannot be planned.
#include "bridge/step/submit.h"

#include <utility>

#include "base/error.h"
#include "bridge/backend/compat.h"
#include "bridge/plans/memory.h"
#include "bridge/plans/plan_warnings.h"
#include "bridge/python/gil.h"
#include "bridge/python/source.h"
#include "bridge/recorder/engine.h"
#include "bridge/recorder/loaded.h"
#include "bridge/step/constants.h"
#include "bridge/step/finish.h"
#include "bridge/tensor/abstract.h"

namespace spmdx::bridge {
namespace {

DataRef result_data(const TensorType& type) {
  return planning_only() ? abstract_data(type) : std::make_shared<Data>(type);
}

// What the root goes back to; results of steps that were only planned are skipped.
DataRef computed_before(const Root& root) {
  const DataRef& previous = root.previous;
  return previous && previous->is_abstract() ? previous->fallback() : previous;
}

// Whether kernels do on this thread what they do on the step thread: no transform or mode of PyTorch stands above them
// that a KernelGuard does not switch off.
bool thread_is_plain() {
  const c10::DispatchKeySet included = c10::impl::tls_local_dispatch_key_set().included_;
  return (included - keys_above_kernels() - c10::default_included_set).empty();
}

// Those that the program gives, and behind them the starts.
std::vector<Param> params_of(const RecorderState& state, const std::vector<int64_t>& starts) {
  std::vector<Param> params;
  params.reserve(state.params.size() + starts.size());
  params = state.params;
  for (const int64_t start : starts) params.push_back({.integer = start});
  return params;
}

// Before the roots let go of what they hold.
void note_sent(RecorderState& state, const std::vector<PlannedPart>& parts) {
  for (const PlannedPart& part : parts) {
    if (part.outputs.empty()) continue;
    state.capture->note_sent(part.plan, part.data_of_inputs, params_of(state, part.starts), part.owners);
  }
}

void note_constants_of(const RecorderState& state, const std::vector<PlannedPart>& parts) {
  std::vector<RootRef> roots;
  std::vector<DataRef> results;
  for (const PlannedPart& part : parts) {
    roots.insert(roots.end(), part.owners.begin(), part.owners.end());
    results.insert(results.end(), part.outputs.begin(), part.outputs.begin() + static_cast<long>(part.owners.size()));
  }
  note_constants(state, roots, results);
}

}  // namespace

PlanRef plan_of(const Graph& graph, PlanFor purpose) {
  try {
    NoGil no_gil;
    return engine().plan(graph, purpose);
  } catch (const ShardingError& error) {
    const std::string line = source_text(current_source());
    throw ShardingError((line.empty() ? "" : line + ": ") + error.what());
  }
}

PlannedPart planned(const Graph& done, std::vector<DataRef> data_of_inputs, std::vector<RootRef> owners) {
  PlannedPart part{nullptr, std::move(data_of_inputs), {}, std::move(owners), {}};
  for (const auto& output : done.outputs) part.outputs.push_back(result_data(done.value(output.value).type));
  for (size_t i = 0; i < part.owners.size(); ++i)
    part.outputs[i]->set_fallback(computed_before(root_of(part.owners[i])));
  if (part.outputs.empty()) return part;
  part.plan = plan_of(done, planning_only() ? PlanFor::question : PlanFor::step);
  if (!part.plan->starts.values.empty()) part.starts = starts_of(done);
  if (!part.plan->fallbacks.empty() || part.plan->repeat || part.plan->idle_stages) note_plan(*part.plan);
  return part;
}

// A step may overwrite an input only if nobody else holds it: roots and the recorder let go of it before the step runs.
void queue_parts(RecorderState& state, std::vector<PlannedPart> parts, bool awaited) {
  if (planning_only()) note_constants_of(state, parts);
  if (state.capture) note_sent(state, parts);
  for (const PlannedPart& part : parts) {
    for (size_t i = 0; i < part.owners.size(); ++i) {
      Root& root = root_of(part.owners[i]);
      root.previous = nullptr;
      root.current = {0, kNone, part.outputs[i]};
    }
  }
  state.send_rebound(parts.empty() || parts[0].outputs.empty() ? nullptr : parts[0].outputs[0]);
  state.inputs.clear();
  state.input_of.clear();
  const RunOn thread = awaited && thread_is_plain() ? RunOn::caller_if_brief : RunOn::step_thread;
  NoGil no_gil;
  for (PlannedPart& part : parts) {
    if (part.outputs.empty()) continue;
    if (planning_only())
      set_shardings(*part.plan, part.outputs);
    else
      engine().submit(part.plan, std::move(part.data_of_inputs), params_of(state, part.starts), std::move(part.outputs),
                      thread);
  }
}

bool submit(RecorderState& state, bool awaited) {
  end_loaded_annotations(state);
  const GradientInputs gradients = state.gradients();
  std::vector<PlannedPart> parts;
  bool more = false;
  for (auto& owners : pending_by_mesh(state, gradients)) {
    FinishedGraph done = finish_graph(state, std::move(owners), gradients);
    more = done.more;  // the last graph knows what is left
    parts.push_back(planned(done.graph, std::move(done.data_of_inputs), std::move(done.owners)));
    if (parts.back().plan) require_fits(*parts.back().plan);
  }
  queue_parts(state, std::move(parts), awaited);
  return more;
}

}  // namespace spmdx::bridge
