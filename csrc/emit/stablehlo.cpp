// SPDX-License-Identifier: Apache-2.0
// StableHLO: the table of rows, and the function around them.
#include "emit/stablehlo.h"

#include <algorithm>

#include "emit/rows/site.h"

namespace spmdx {
namespace {

const emit::Table& table() {
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
  const auto row = table().find(node.call->op);
  if (row == table().end()) emit::refuse(site, "it has no row");
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

}  // namespace

std::string stablehlo(const Graph& graph) {
  emit::Writer writer;
  std::vector<emit::Tensor> values(graph.values.size()), facts;
  std::string takes, gives, names;
  for (const Input& input : graph.inputs) {
    const TensorType& type = graph.values[input.value].type;
    values[input.value] = {"%arg" + std::to_string(&input - graph.inputs.data()), {type.dtype, type.shape}};
    takes += (takes.empty() ? "" : ", ") + values[input.value].name + ": " + emit::mlir_type(type);
  }
  for (const Node& node : graph.nodes) write(writer, graph, node, values, facts);
  std::vector<emit::Tensor> results;
  for (const Output& output : graph.outputs) results.push_back(values[output.value]);
  if (!facts.empty()) results.push_back(all_of(writer, facts));
  for (const emit::Tensor& result : results) {
    gives += (gives.empty() ? "" : ", ") + emit::mlir_type(result.type);
    names += (names.empty() ? "" : ", ") + result.name;
  }
  return "module @segment {\nfunc.func public @main(" + takes + ") -> (" + gives + ") {\n" + writer.text() +
         "  \"func.return\"(" + names + ") : (" + gives + ") -> ()\n}\n}\n";
}

std::vector<std::string> ops_of_stablehlo() {
  std::vector<std::string> ops;
  for (const auto& [op, row] : table()) ops.push_back(op);
  std::sort(ops.begin(), ops.end());
  return ops;
}

}  // namespace spmdx
