// SPDX-License-Identifier: Apache-2.0
// Builder: makes a call from an op, arguments and values, and adds a node for it.
#include "rules/build/builder.h"

namespace spmdx {

ValueId Builder::emit(std::string op, std::vector<Arg> args, std::vector<ValueId> inputs,
                      std::vector<TensorType> outputs, uint32_t num_params, uint32_t param) {
  Call call;
  call.op = std::move(op);
  call.args = std::move(args);
  for (ValueId input : inputs) call.inputs.push_back(graph_.values.at(input).type);
  call.outputs = std::move(outputs);
  call.num_params = num_params;
  return graph_.add_node(seal(std::move(call)), std::move(inputs), source_, param);
}

}  // namespace spmdx
