// SPDX-License-Identifier: Apache-2.0
// Expansions of attention: first into the op that knows where its blocks begin, then, for cut keys, into two passes.
#include "rules/build/maths.h"
#include "rules/composite.h"
#include "rules/families.h"

namespace spmdx {
namespace {

// ATen's arguments from `causal` on, and the beginnings of both sequences. The dropout before them is 0.
std::vector<Arg> block_args(const Call& call, size_t tensors, size_t causal) {
  std::vector<Arg> args;
  for (uint32_t i = 0; i < tensors; ++i) args.push_back(TensorArg{i});
  for (size_t i = causal; i < causal + 3; ++i) args.push_back(argument(call, i));
  args.push_back(int64_t{0});
  args.push_back(int64_t{0});
  return args;
}

// The scale may be a parameter; the dropout before it is one that is left out.
Scalar kept_scale(const Node& node, std::vector<Arg>& args) {
  for (Arg& arg : args)
    if (const auto* real = std::get_if<RealParam>(&arg)) {
      const Scalar scale{RealParam{0}, 1, node.param + real->index};
      arg = RealParam{0};
      return scale;
    }
  return {};
}

ValueId emit(Maths& maths, const Node& node, const char* op, std::vector<Arg> args, Values inputs,
             std::vector<TensorType> outputs) {
  const Scalar scale = kept_scale(node, args);
  return maths.emit(op, std::move(args), std::move(inputs), std::move(outputs), scale);
}

Values several(ValueId first, size_t count) {
  Values values;
  for (size_t i = 0; i < count; ++i) values.push_back(first + static_cast<ValueId>(i));
  return values;
}

}  // namespace

Values expand_attention(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const Call& call = maths.call();
  return several(emit(maths, node, "spmdx.attention", block_args(call, 3, 4), node.inputs, call.outputs), 2);
}

Values expand_attention_backward(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const Call& call = maths.call();
  return several(emit(maths, node, "spmdx.attention_backward", block_args(call, 6, 7), node.inputs, call.outputs), 3);
}

// Keys are cut: sums over the keys of a device, of exponentials that all devices take from the same number.
Values expand_attention_block(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const Call& call = maths.call();
  const TensorType out = maths.output(0), rows = maths.output(1);
  const ValueId top = emit(maths, node, "spmdx.attention_top", call.args, node.inputs, {rows});
  std::vector<Arg> args = call.args;
  args.insert(args.begin() + 3, TensorArg{3});
  Values inputs = node.inputs;
  inputs.insert(inputs.begin() + 3, top);
  if (auto* mask = std::get_if<TensorArg>(&args.at(5))) ++mask->input;
  const ValueId sums =
      emit(maths, node, "spmdx.attention_sums", std::move(args), std::move(inputs), {{rows.dtype, out.shape}, rows});
  const ValueId total = sums + 1;
  const ValueId some = maths.compare("aten.ne.Scalar", total, 0.0);
  Shape column = rows.shape;
  column.push_back(1);
  const ValueId result = maths.where_or(maths.view(some, column), maths.div(sums, maths.view(total, column)), 0.0);
  const ValueId logsumexp = maths.where_or(some, maths.add(top, maths.unary("aten.log", total)), 0.0);
  return {maths.cast(result, out.dtype), logsumexp};
}

}  // namespace spmdx
