// SPDX-License-Identifier: Apache-2.0
// Trials from Python: shows the recorded graph, and runs one of its ops with each sharding that its rule allows.
#include "passes/report/trial.h"
#include "sharding/notation.h"
#include "sharding/shards.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "bind/bind.h"
#include "bind/handles.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/shard_device.h"
#include "bridge/recorder/engine.h"
#include "bridge/recorder/recorder.h"
#include "bridge/step/run_now.h"
#include "rules/build/letters.h"
#include "rules/lookup.h"

namespace spmdx {
namespace {

namespace py = pybind11;
using namespace bind;
using namespace py::literals;
using Tensors = std::vector<at::Tensor>;

// With errors as they are.
std::vector<Shards> run_now(const Graph& graph, const std::vector<DataRef>& inputs, const std::vector<Param>& params) {
  return bridge::run_now(graph, inputs, params, [](std::exception_ptr error, const Node&) { return error; });
}

Tensors tensors_of(const Shards& shards) {
  Tensors result;
  for (const BufferRef& shard : shards) result.push_back(bridge::to_host(bridge::tensor_of(shard)));
  return result;
}

// The layout of a value: for every distinct shard its box, and the index of its term if the value is partial.
py::dict layout(const Graph& graph, ValueId id) {
  const Value& value = graph.values[id];
  const Mesh& mesh = *graph.mesh;
  const ShardingRef sharding = value.sharding ? value.sharding : replicated(graph.mesh, value.type.shape.size());
  py::list boxes, parts;
  for (int64_t index = 0; index < num_distinct(mesh, sharding->used()); ++index) {
    const int64_t position = representative(mesh, sharding->used(), index);
    py::list box;
    for (const Range& range : local_box(*sharding, value.type.shape, position))
      box.append(py::make_tuple(range.start, range.extent));
    boxes.append(py::tuple(box));
    parts.append(sharding->partial ? distinct_index(mesh, sharding->partial, position) : 0);
  }
  return py::dict("boxes"_a = boxes, "parts"_a = parts, "reduction"_a = std::string(name(sharding->reduction)),
                  "text"_a = str(value.type, sharding));
}

py::list layouts(const Graph& graph, bool inputs) {
  py::list result;
  if (inputs)
    for (const Input& input : graph.inputs) result.append(layout(graph, input.value));
  else
    for (const Output& output : graph.outputs) result.append(layout(graph, output.value));
  return result;
}

// A trial: a graph of one op with shardings, and the values of the op's parameters.
struct TrialHandle {
  Graph graph;
  std::vector<Param> params;

  std::vector<Tensors> run(const std::vector<Tensors>& shards) const {
    std::vector<DataRef> inputs;
    for (size_t i = 0; i < shards.size(); ++i) {
      const Value& value = graph.values[graph.inputs.at(i).value];
      Shards buffers;
      for (const at::Tensor& shard : shards[i]) buffers.push_back(bridge::lent(shard));
      inputs.push_back(std::make_shared<Data>(value.type, value.sharding, std::move(buffers)));
    }
    std::vector<Tensors> outputs;
    for (const Shards& made : run_now(graph, inputs, params)) outputs.push_back(tensors_of(made));
    return outputs;
  }
};

py::dict node_row(const Graph& graph, const Node& node) {
  py::list outputs;
  for (size_t r = 0; r < node.call->outputs.size(); ++r)
    outputs.append(rules::produced(node.call->outputs[r]) ? py::cast(node.output + r) : py::none());
  const OpRuleRef rule = rule_for(node.call);
  return py::dict("op"_a = node.call->op, "inputs"_a = node.inputs, "outputs"_a = outputs,
                  "text"_a = print(node, graph), "has_rule"_a = !rule->fallback, "hash"_a = node.call->hash);
}

py::list nodes(const bridge::Recording& recording) {
  py::list rows;
  for (const Node& node : recording.graph.nodes) rows.append(node_row(recording.graph, node));
  return rows;
}

// All values of the graph, computed on one device without cuts; none for a result that its op does not make.
std::vector<std::optional<at::Tensor>> values(const bridge::Recording& recording) {
  Graph graph = recording.graph;
  graph.mesh = nullptr;
  graph.outputs.clear();
  graph.constraints.clear();
  for (ValueId value = 0; value < graph.values.size(); ++value)
    if (rules::produced(graph.values[value].type)) graph.outputs.push_back({.value = value});
  const std::vector<Shards> made = run_now(graph, recording.inputs, recording.params);
  std::vector<std::optional<at::Tensor>> result(graph.values.size());
  for (size_t i = 0; i < made.size(); ++i)
    result[graph.outputs[i].value] = bridge::to_host(bridge::tensor_of(made[i].at(0)));
  return result;
}

std::vector<Param> params_of(const bridge::Recording& recording, const Node& node) {
  const auto first = recording.params.begin() + node.param;
  return {first, first + node.call->num_params};
}

std::vector<TrialHandle> trials_of(const bridge::Recording& recording, size_t index, const MeshHandle& mesh) {
  const Node& node = recording.graph.nodes.at(index);
  const std::vector<Param> params = params_of(recording, node);
  std::vector<TrialHandle> result;
  for (Graph& graph : trials(node.call, mesh.mesh, bridge::engine().options()))
    result.push_back({std::move(graph), params});
  return result;
}

constexpr int kWhole = -1, kSum = -2;  // any number from 0 on: the dim that the first axis of the mesh cuts

ShardingRef sharding_as(int how, const TensorType& type, const MeshRef& mesh) {
  Sharding sharding = *replicated(mesh, type.shape.size());
  const SubAxisList sub_axes = mesh->sub_axes_of_axis(0);
  if (how >= 0) sharding.dims.at(how) = {sub_axes, 1};
  if (how == kSum) sharding.partial = sub_axis_set(sub_axes), sharding.reduction = Reduction::sum;
  return intern(std::move(sharding), type.shape);
}

// A trial of the node with these shardings of operands and results, whether its rule allows them or not.
TrialHandle guess(const bridge::Recording& recording, size_t index, const MeshHandle& mesh,
                  const std::vector<int>& inputs, const std::vector<int>& outputs) {
  const Node& node = recording.graph.nodes.at(index);
  Placement placement;
  for (size_t i = 0; i < node.call->inputs.size(); ++i)
    placement.inputs.push_back(sharding_as(inputs.at(i), node.call->inputs[i], mesh.mesh));
  for (size_t r = 0; r < node.call->outputs.size(); ++r)
    placement.outputs.push_back(sharding_as(outputs.at(r), node.call->outputs[r], mesh.mesh));
  return {laid_out(node.call, mesh.mesh, placement), params_of(recording, node)};
}

}  // namespace

void bind_trials(py::module_& m) {
  py::class_<TrialHandle>(m, "Trial")
      .def_property_readonly("inputs", [](const TrialHandle& trial) { return layouts(trial.graph, true); })
      .def_property_readonly("outputs", [](const TrialHandle& trial) { return layouts(trial.graph, false); })
      .def_property_readonly("text", [](const TrialHandle& trial) { return print(trial.graph); })
      .def("run", &TrialHandle::run, "shards"_a);
  py::class_<bridge::Recording>(m, "Recording")
      .def_property_readonly("nodes", nodes)
      .def("values", values)
      .def("trials", trials_of, "node"_a, "mesh"_a)
      .def("guess", guess, "node"_a, "mesh"_a, "inputs"_a, "outputs"_a);
  m.def("recording", [] { return bridge::Recorder::instance().recording(); });
}

}  // namespace spmdx
