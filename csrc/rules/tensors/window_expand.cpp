// SPDX-License-Identifier: Apache-2.0
// Expansions into windows: the op as it is, and which dim its indices point into.
#include "base/error.h"
#include "rules/build/maths.h"
#include "rules/composite.h"
#include "rules/families.h"
#include "rules/tensors/windows.h"

namespace spmdx {
namespace {

struct Indexing {
  int operand = -1;
  size_t dim = 0;
};

// index and index_put have a list with one place a dim, all others a dim and then an index.
Indexing indexing_of(const Call& call) {
  if (const auto* list = std::get_if<TensorListArg>(&argument(call, 1))) {
    for (size_t d = 0; d < list->inputs.size(); ++d)
      if (list->inputs[d] != kNone) return {static_cast<int>(list->inputs[d]), d};
  }
  const size_t rank = call.inputs.at(0).shape.size();
  return {operand(call, 2), static_cast<size_t>(normal_dim(integer(call, 1, 0), rank))};
}

bool is_zeros(const Maths& maths, ValueId value) {
  const Node* made = maths.producer(value);
  return made && made->call->op == "aten.full" && is_number(argument(*made->call, 1), 0);
}

}  // namespace

// Rows that are added are added to zeros first, so that devices may do a part of the rows each.
Values expand_window(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const Call& call = maths.call();
  const Indexing at = indexing_of(call);
  internal_check(at.operand >= 0, "no index in " + call.op);
  std::vector<Arg> args = {call.op, int64_t{at.operand}, static_cast<int64_t>(at.dim), int64_t{0},
                           call.inputs[0].shape.at(at.dim)};
  args.insert(args.end(), call.args.begin(), call.args.end());
  Values inputs = node.inputs;
  const bool adds = adds_rows(call), to_zeros = is_zeros(maths, inputs[0]);
  if (adds && !to_zeros) inputs[0] = maths.full(call.inputs[0].shape, int64_t{0}, call.inputs[0].dtype);
  const ValueId written = maths.emit("spmdx.window", std::move(args), std::move(inputs), {maths.output(0)},
                                     Scalar{{}, call.num_params, node.param});
  return {adds && !to_zeros ? maths.add(node.inputs[0], written) : written};
}

}  // namespace spmdx
