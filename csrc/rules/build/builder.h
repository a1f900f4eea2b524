// SPDX-License-Identifier: Apache-2.0
// Builder: appends nodes to a graph, all from the same line of the program.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

class Builder {
 public:
  Builder(Graph& graph, SourceId source) : graph_(graph), source_(source) {}
  const TensorType& type(ValueId value) const { return graph_.values[value].type; }
  // Appends op(args) with the given operands and result types; returns the first result.
  ValueId emit(std::string op, std::vector<Arg> args, std::vector<ValueId> inputs, std::vector<TensorType> outputs,
               uint32_t num_params = 0, uint32_t param = 0);
  Graph& graph() { return graph_; }

 private:
  Graph& graph_;
  SourceId source_;
};

}  // namespace spmdx
