// SPDX-License-Identifier: Apache-2.0
// Traced: what is recorded, with the outputs that are asked for and nothing else.
#include "bridge/export/traced.h"

#include <utility>

#include "base/error.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/shard_device.h"
#include "bridge/python/source.h"
#include "bridge/recorder/loaded.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/step/finish.h"
#include "emit/mlir/shardy.h"
#include "emit/stablehlo.h"
#include "graph/rewrite.h"
#include "graph/text.h"
#include "runtime/segments/fuse.h"

namespace spmdx::bridge {
namespace {

bool is_on(const MeshRef& mesh, const ShardingRef& sharding) { return mesh && sharding && *sharding->mesh == *mesh; }

// How an input lies: as the user wrote, or else as its data do, where Shardy has that.
ShardingRef layout_of(const Graph& graph, const Input& input, const ShardingRef& physical) {
  if (is_on(graph.mesh, input.annotation)) return input.annotation;
  const bool is_known = is_on(graph.mesh, physical) && emit::sdy_has(graph.values[input.value].type, physical, true);
  return is_known ? physical : nullptr;
}

// Inputs that are needed, with the layouts of their data as annotations. Outputs lie like what they are tied to.
void lay_out(Traced& traced, const RecorderState& state, const std::vector<bool>& needed) {
  Graph& graph = traced.graph;
  std::vector<Input> kept;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    Input& input = graph.inputs[i];
    input.annotation = layout_of(graph, input, state.inputs[i]->sharding());
    if (!needed[input.value]) continue;
    kept.push_back(input);
    traced.data_of_inputs.push_back(state.inputs[i]);
  }
  for (Output& output : graph.outputs) {
    if (!output.annotation && output.tied != kNone) output.annotation = graph.inputs[output.tied].annotation;
    output.tied = kNone;
    output.donates = false;
  }
  graph.inputs = std::move(kept);
}

// Says with the user's line what Shardy cannot.
void expect_attributes(const Graph& graph) {
  if (!graph.mesh) return;
  const auto expect = [&](ValueId value, const ShardingRef& sharding, SourceId source, bool is_outside) {
    if (!sharding) return;
    try {
      emit::sdy_sharding(graph.values[value].type, sharding, is_outside);
    } catch (const ShardingError& error) {
      const std::string line = source_text(source ? source : source_of(graph, value));
      throw ShardingError((line.empty() ? "" : line + ": ") + error.what());
    }
  };
  for (const Input& input : graph.inputs) expect(input.value, input.annotation, input.source, true);
  for (const Output& output : graph.outputs) expect(output.value, output.annotation, output.source, true);
  for (const Constraint& constraint : graph.constraints)
    expect(constraint.value, constraint.sharding, constraint.source, false);
}

Traced traced_outputs(const RecorderState& state, std::vector<Output> outputs) {
  Traced traced;
  const std::vector<bool> needed = needed_values(state.graph, outputs);
  Graph& graph = traced.graph = state.graph;
  graph.mesh = mesh_of(state, outputs, needed);
  traced.results = outputs.size();
  graph.outputs = std::move(outputs);
  std::erase_if(graph.constraints, [&](const Constraint& c) { return !needed[c.value]; });
  lay_out(traced, state, needed);
  for (const Constraint& constraint : graph.constraints) graph.outputs.push_back({.value = constraint.value});
  drop_dead(graph);
  const std::span<const Param> params = state.params;
  graph.num_params = 0;
  for (Node& node : graph.nodes)
    if (node.call->num_params) node.call = with_constants(*node.call, params.subspan(node.param));
  return traced;
}

[[noreturn]] void refuse_computed(size_t place) {
  throw ShardingError("tensor " + std::to_string(place) +
                      " is computed already, so nothing is traced for it. Expected one that no step has computed. "
                      "Export it before spmdx.mark_step() and before it is read, or export the function of the step.");
}

}  // namespace

Traced traced_values(const std::vector<at::Tensor>& tensors) {
  const Recorder::Lock lock;
  RecorderState& state = Recorder::instance().state();
  end_loaded_annotations(state);
  const GradientInputs gradients = state.gradients();
  std::vector<ValueId> values;
  for (const at::Tensor& tensor : tensors) {
    if (!state.pending(as_lazy(tensor)->root().current)) refuse_computed(values.size());
    values.push_back(Recorder::instance().read(*as_lazy(tensor)));
  }
  std::vector<Output> outputs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Output whole = output_of(state, as_lazy(tensors[i])->root(), gradients);
    outputs.push_back(whole.value == values[i] ? whole : Output{.value = values[i]});
  }
  return traced_outputs(state, std::move(outputs));
}

Traced traced_step() {
  const Recorder::Lock lock;
  RecorderState& state = Recorder::instance().state();
  end_loaded_annotations(state);
  const GradientInputs gradients = state.gradients();
  std::vector<Output> outputs;
  for (const auto& owners : pending_by_mesh(state, gradients))
    for (const RootRef& owner : owners) outputs.push_back(output_of(state, root_of(owner), gradients));
  return traced_outputs(state, std::move(outputs));
}

std::map<size_t, at::Tensor> numbers_in(const Traced& traced) {
  std::map<size_t, at::Tensor> numbers;
  for (size_t i = 0; i < traced.data_of_inputs.size(); ++i) {
    const Data& data = *traced.data_of_inputs[i];
    if (data.type().wrapped_number && !data.is_abstract()) numbers[i] = to_host(tensor_of(data.wait().at(0)));
  }
  return numbers;
}

std::string stablehlo_of(const Traced& traced, const std::string& text, bool sharded) {
  Graph graph = parse_graph(text);
  if (!sharded || !traced.graph.mesh) return graph.outputs.resize(traced.results), stablehlo_of_step(graph);
  expect_attributes(traced.graph);
  graph.mesh = traced.graph.mesh;
  const std::map<size_t, at::Tensor> numbers = numbers_in(traced);
  size_t next = 0;
  for (size_t i = 0; i < traced.graph.inputs.size(); ++i)
    if (!numbers.contains(i)) graph.inputs.at(next++).annotation = traced.graph.inputs[i].annotation;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    Output& output = graph.outputs[i];
    if (i < traced.results)
      output.annotation = traced.graph.outputs[i].annotation;
    else
      graph.constraints.push_back({output.value, traced.graph.constraints[i - traced.results].sharding});
  }
  graph.outputs.resize(traced.results);
  return stablehlo_of_step(graph);
}

}  // namespace spmdx::bridge
