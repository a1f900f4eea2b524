// SPDX-License-Identifier: Apache-2.0
// Builder: appends nodes to a graph, all with the same source (the user's line).
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

class Builder {
 public:
  Builder(Graph& graph, SourceId source) : graph_(graph), source_(source) {}
  const TensorType& type(ValueId value) const { return graph_.values[value].type; }
  // Appends a call of `op`; operand types are those of the values. Returns the first result; the others follow it.
  // `num_params` and `param`: how many parameters of the plan the call reads, and the first of them.
  ValueId emit(std::string op, std::vector<Arg> args, std::vector<ValueId> inputs, std::vector<TensorType> outputs,
               uint32_t num_params = 0, uint32_t param = 0);
  Graph& graph() { return graph_; }

 private:
  Graph& graph_;
  SourceId source_;
};

}  // namespace spmdx
