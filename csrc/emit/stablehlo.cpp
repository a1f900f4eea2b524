// SPDX-License-Identifier: Apache-2.0
// StableHLO: the table of rows, and the function around them.
#include "emit/stablehlo.h"

#include <algorithm>

#include "emit/mlir/shardy.h"
#include "emit/rows/site.h"

namespace spmdx {
namespace {

const emit::Table& stablehlo_rows() {
  static const emit::Table rows = [] {
    emit::Table made;
    for (const auto add :
         {emit::add_elementwise, emit::add_special_functions, emit::add_shapes, emit::add_reductions,
          emit::add_products, emit::add_convolutions, emit::add_windows, emit::add_rows_by_index, emit::add_sorts})
      add(made);
    return made;
  }();
  return rows;
}

// The op in the types of its results, which a row may have left otherwise.
void write(emit::Writer& writer, const Graph& graph, const Node& node, std::vector<emit::Tensor>& values,
           std::vector<emit::Tensor>& facts) {
  emit::Site site{writer, graph, node, values, facts};
  const auto row = stablehlo_rows().find(node.call->op);
  if (row == stablehlo_rows().end()) emit::refuse(site, "it has no row");
  std::vector<emit::Tensor> made = row->second(site);
  for (size_t r = 0; r < node.call->outputs.size(); ++r) {
    const TensorType& type = node.call->outputs[r];
    if (r >= made.size()) emit::refuse(site, "it has no result " + std::to_string(r));
    if (type.dtype == DType::unknown) continue;
    if (made[r].name.empty()) emit::refuse(site, "it makes no result " + std::to_string(r));
    if (made[r].type.shape != type.shape) emit::refuse(site, "it gives " + str(made[r].type) + " and not " + str(type));
    values[node.output + r] = writer.convert(made[r], type.dtype);
  }
}

emit::Tensor all_of(emit::Writer& writer, const std::vector<emit::Tensor>& facts) {
  emit::Tensor all = facts[0];
  for (size_t i = 1; i < facts.size(); ++i) all = writer.binary("and", all, facts[i]);
  return all;
}

// What is between the braces of a function: its arguments and results, each with attributes, and its ops.
struct Function {
  emit::Writer writer;
  std::vector<emit::Tensor> values, facts, results;
  std::string takes, gives;

  explicit Function(const Graph& graph) : values(graph.values.size()) {
    for (const Input& input : graph.inputs) take(graph, input);
    for (const Node& node : graph.nodes) {
      write(writer, graph, node, values, facts);
      for (size_t r = 0; r < node.call->outputs.size(); ++r) constrain(graph, node.output + static_cast<ValueId>(r));
    }
    for (const Output& output : graph.outputs) give(values[output.value], graph, output.annotation);
  }

  void give(const emit::Tensor& result, const Graph& graph, const ShardingRef& annotation) {
    gives += (gives.empty() ? "" : ", ") + emit::mlir_type(result.type) + attribute(graph, result.type, annotation);
    results.push_back(result);
  }

  // Of a module; `head` stands above the function.
  std::string text(const std::string& module, const std::string& head) const {
    std::string names, types;
    for (const emit::Tensor& result : results) {
      names += (names.empty() ? "" : ", ") + result.name;
      types += (types.empty() ? "" : ", ") + emit::mlir_type(result.type);
    }
    return "module @" + module + " {\n" + head + "func.func public @main(" + takes + ") -> (" + gives + ") {\n" +
           writer.text() + "  \"func.return\"(" + names + ") : (" + types + ") -> ()\n}\n}\n";
  }

 private:
  void take(const Graph& graph, const Input& input) {
    const TensorType& type = graph.values[input.value].type;
    values[input.value] = {"%arg" + std::to_string(&input - graph.inputs.data()), {type.dtype, type.shape}};
    takes += (takes.empty() ? "" : ", ") + values[input.value].name + ": " + emit::mlir_type(type) +
             attribute(graph, type, input.annotation);
    constrain(graph, input.value);
  }

  // What reads the value reads what the constraint gives.
  void constrain(const Graph& graph, ValueId value) {
    for (const Constraint& constraint : graph.constraints) {
      if (constraint.value != value || !graph.mesh) continue;
      const emit::Tensor& tensor = values[value];
      const std::string sharding = emit::sdy_sharding(tensor.type, constraint.sharding, false);
      values[value] = writer.op("sdy.sharding_constraint", {tensor}, tensor.type, "sharding = " + sharding);
    }
  }

  static std::string attribute(const Graph& graph, const TensorType& type, const ShardingRef& annotation) {
    if (!graph.mesh || !annotation) return "";
    return " {sdy.sharding = " + emit::sdy_sharding(type, annotation, true) + "}";
  }
};

}  // namespace

std::string stablehlo(const Graph& graph) {
  Function main(graph);
  if (!main.facts.empty()) main.give(all_of(main.writer, main.facts), graph, nullptr);
  return main.text("segment", "");
}

std::string stablehlo_of_step(const Graph& graph) {
  return Function(graph).text("step", graph.mesh ? emit::sdy_mesh(*graph.mesh) + "\n" : "");
}

std::vector<std::string> ops_of_stablehlo() {
  std::vector<std::string> ops;
  for (const auto& [op, row] : stablehlo_rows()) ops.push_back(op);
  std::sort(ops.begin(), ops.end());
  return ops;
}

}  // namespace spmdx
