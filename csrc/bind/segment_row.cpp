// SPDX-License-Identifier: Apache-2.0
// Segment row: inputs, nodes and outputs as lists that JSON has as well.
#include "bind/segment_row.h"

#include <pybind11/stl.h>

namespace spmdx::bind {
namespace {

namespace py = pybind11;
using namespace py::literals;

// Arguments as JSON has them; what is no constant is a pair of its kind and a number or a text.
struct ArgRow {
  const Node& node;

  py::object operand(uint32_t input) const {
    return input == kNone ? py::none() : py::object(py::make_tuple("value", node.inputs[input]));
  }
  py::object operator()(std::monostate) const { return py::none(); }
  py::object operator()(const TensorArg& arg) const { return operand(arg.input); }
  py::list operator()(const TensorListArg& arg) const {
    py::list values;
    for (const uint32_t input : arg.inputs) values.append(operand(input));
    return values;
  }
  py::object operator()(DType arg) const { return py::make_tuple("dtype", std::string(name(arg))); }
  py::object operator()(const RealParam& arg) const { return py::make_tuple("param", node.param + arg.index); }
  py::object operator()(const IntParam& arg) const { return py::make_tuple("param", node.param + arg.index); }
  py::object operator()(const OpaqueArg& arg) const { return py::make_tuple("opaque", arg.text); }
  template <class Constant>
  py::object operator()(const Constant& arg) const {
    return py::cast(arg);
  }
};

py::tuple type_row(const TensorType& type) {
  return py::make_tuple(std::string(name(type.dtype)), type.shape, type.wrapped_number);
}

py::list type_rows(const std::vector<TensorType>& types) {
  py::list rows;
  for (const TensorType& type : types) rows.append(type_row(type));
  return rows;
}

}  // namespace

py::dict segment_row(const Graph& graph) {
  py::list inputs, nodes, outputs;
  for (const Input& input : graph.inputs)
    inputs.append(py::make_tuple(input.value, type_row(graph.values[input.value].type)));
  for (const Node& node : graph.nodes) {
    py::list args;
    for (const Arg& arg : node.call->args)
      args.append(std::visit([&](const auto& kind) -> py::object { return ArgRow{node}(kind); }, arg));
    nodes.append(py::dict("op"_a = node.call->op, "args"_a = args, "first"_a = node.output,
                          "types"_a = type_rows(node.call->outputs)));
  }
  py::list over;
  for (const Output& output : graph.outputs) {
    outputs.append(py::make_tuple(output.value, type_row(graph.values[output.value].type)));
    over.append(output.donates ? static_cast<int64_t>(output.tied) : -1);
  }
  return py::dict("inputs"_a = inputs, "params"_a = graph.num_params, "nodes"_a = nodes, "outputs"_a = outputs,
                  "over"_a = over);
}

}  // namespace spmdx::bind
