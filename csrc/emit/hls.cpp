// SPDX-License-Identifier: Apache-2.0
// HLS: the table of rows, and the design around them.
#include "emit/hls.h"

#include <algorithm>

#include "base/error.h"
#include "emit/hls/project/project.h"
#include "emit/hls/rows/site.h"
#include "emit/hls/text.h"

namespace spmdx {
namespace {

using namespace emit::hls;

const Table& hls_rows() {
  static const Table rows = [] {
    Table made;
    for (const auto add : {add_elementwise, add_functions, add_activations, add_shapes, add_joins, add_reductions,
                           add_products, add_convolutions, add_pools})
      add(made);
    return made;
  }();
  return rows;
}

Operand constant(Design& design, const TensorType& type, std::vector<double> numbers) {
  if (static_cast<int64_t>(numbers.size()) != numel(type.shape))
    throw ShardingError("a constant has " + std::to_string(numbers.size()) + " elements. Expected those of " +
                        str(type) + ". Give as many.");
  Operand made;
  made.kind = Operand::Kind::rom;
  made.elem = elem_of(type.dtype);
  made.shape = type.shape;
  made.strides = contiguous(type.shape);
  made.number = design.add_rom({made.elem, std::move(numbers)});
  return made;
}

Operand loaded(Design& design, const TensorType& type, int64_t place) {
  const Elem elem = elem_of(type.dtype);
  design.ports.push_back({true, place, elem, type.shape});
  Stage stage;
  stage.kind = Stage::Kind::load;
  stage.op = "load";
  stage.port = static_cast<int64_t>(design.ports.size()) - 1;
  const uint32_t out = design.add_stream(elem, type.shape, static_cast<uint32_t>(design.stages.size()));
  Nest nest{{numel(type.shape)}, {write_line(out, design.ports.back().name() + "[i0]")}, {}};
  nest.writes = {out};
  stage.once.push_back(std::move(nest));
  design.add_stage(std::move(stage));
  return design.of_stream(out);
}

void store(Design& design, const Operand& given, const TensorType& type, int64_t place) {
  const Operand a = as_stream(design, given);
  const Elem elem = elem_of(type.dtype);
  design.ports.push_back({false, place, elem, type.shape});
  Stage stage;
  stage.kind = Stage::Kind::store;
  stage.op = "store";
  stage.port = static_cast<int64_t>(design.ports.size()) - 1;
  const std::string text = design.ports.back().name() + "[i0] = " + type_text(elem) + "(" + read_text(a.number) + ");";
  Nest nest{{numel(type.shape)}, {{text}}, {}};
  nest.reads = {a.number};
  stage.once.push_back(std::move(nest));
  design.add_stage(std::move(stage));
}

void write(Design& design, const Node& node, std::vector<Operand>& values) {
  Site site{design, node, values};
  const auto row = hls_rows().find(node.call->op);
  if (row == hls_rows().end()) refuse(site, "it has no row");
  for (const TensorType& type : node.call->inputs)
    if (numel(type.shape) == 0) refuse(site, "a tensor has no elements");
  const std::vector<Operand> made = row->second(site);
  for (size_t r = 0; r < made.size() && r < node.call->outputs.size(); ++r) {
    if (made[r].shape != site.result(r).shape)
      refuse(site, "it gives " + str(made[r].shape) + " and not " + str(site.result(r)));
    values[node.output + r] = made[r];
  }
}

}  // namespace

HlsProject hls_project(const Graph& graph, const std::map<int64_t, std::vector<double>>& constants,
                       const HlsOptions& options) {
  Design design;
  design.options = options;
  std::vector<Operand> values(graph.values.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    const TensorType& type = graph.values[graph.inputs[i].value].type;
    const auto known = constants.find(place);
    values[graph.inputs[i].value] =
        known == constants.end() ? loaded(design, type, place) : constant(design, type, known->second);
  }
  for (const Node& node : graph.nodes) write(design, node, values);
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const ValueId value = graph.outputs[i].value;
    store(design, values[value], graph.values[value].type, static_cast<int64_t>(i));
  }
  const Uses used = uses(design);
  HlsProject project;
  project.estimate = estimate(design, used);
  project.report = report(project.estimate, design);
  project.files = project_files(design, used, project.report);
  return project;
}

std::vector<std::string> ops_of_hls() {
  std::vector<std::string> ops;
  for (const auto& [op, row] : hls_rows()) ops.push_back(op);
  std::sort(ops.begin(), ops.end());
  return ops;
}

}  // namespace spmdx
