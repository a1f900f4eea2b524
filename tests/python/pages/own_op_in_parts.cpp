// SPDX-License-Identifier: Apache-2.0
// Runs the kernel of a graph's one op on its whole operand, and on the part of each device; prints both, added up.
#include <ATen/ops/arange.h>

#include <iostream>
#include <iterator>
#include <map>

#include "bridge/backend/buffer.h"
#include "bridge/backend/own_kernels.h"
#include "graph/text.h"
#include "rules/lookup.h"
#include "sharding/shards.h"

namespace spmdx::bridge {
namespace {

std::map<std::string_view, PrepareCompute>& kernels() {
  static std::map<std::string_view, PrepareCompute> all;
  return all;
}

double run(const Call& call, const at::Tensor& operand) {
  const BufferRef inputs[] = {buffer_of(operand)};
  return kernels().at(call.op)(call)(inputs, {}).at(0).item<double>();
}

double run_in_parts(const Graph& graph, const Node& node, const at::Tensor& whole) {
  const Shape& shape = node.call->inputs.at(0).shape;
  const OpRuleRef rule = rule_for(node.call);
  double total = 0;
  for (int64_t position = 0; position < graph.mesh->size(); ++position) {
    const Box box = local_box(*graph.inputs.at(0).annotation, shape, position);
    Call local = *node.call;
    rule->localise(*node.call, {box}, {Box{}}, local.args);
    at::Tensor part = whole;
    for (size_t d = 0; d < box.size(); ++d) part = part.narrow(static_cast<int64_t>(d), box[d].start, box[d].extent);
    total += run(local, part);
  }
  return total;
}

}  // namespace

// Of the library's only this is needed: the table that kernels add themselves to.
OwnKernels::OwnKernels(std::initializer_list<std::pair<std::string_view, PrepareCompute>> rows, Runs) {
  for (const auto& [op, compute] : rows) kernels().emplace(op, compute);
}

}  // namespace spmdx::bridge

int main() {
  using namespace spmdx;
  const Graph graph = parse_graph({std::istreambuf_iterator<char>(std::cin), {}});
  const Node& node = graph.nodes.at(0);
  const Shape& shape = node.call->inputs.at(0).shape;
  const at::Tensor whole = at::arange(numel(shape), at::kFloat).view(shape);
  std::cout << bridge::run(*node.call, whole) << " " << bridge::run_in_parts(graph, node, whole) << "\n";
}
