// SPDX-License-Identifier: Apache-2.0
// Attention: letters of queries, keys and masks, and the expansion into two passes over cut keys.
#include "rules/layers/attention.h"

#include <algorithm>

#include "graph/args.h"
#include "rules/build/op_builder.h"
#include "rules/build/split_dims.h"

namespace spmdx::rules {
namespace {

// Marks of the letters of the two sequences.
struct Marks {
  std::string query, key;
};

const Marks kWhole = {"+", "+"};  // ATen's ops: cut sequences need the expansion into spmdx.attention

const Marks kBlock = {".", "+"};  // spmdx.attention: queries pass, cut keys need the expansion into two passes

const Marks kSummed = {"", ""};  // ops that reduce over keys, and gradients

// Letters of the kinds of operands. A query head has two factors: g, the key head, and r, the query heads that share
// it.
struct Texts {
  std::string rows, query, key, mask;
};

Texts texts(const Marks& marks) {
  const std::string q = "q" + marks.query, k = "k" + marks.key;
  return {"bgr" + q, "bgr" + q + "e!", "bg" + k + "e!", q + k};
}

int64_t key_heads(const Call& call, size_t key) { return call.inputs.at(key).shape.at(1); }

void add_mask(SplitDims& split, Letters& letters, const Call& call, int mask, int64_t heads, const Texts& text) {
  if (mask < 0) return;
  const auto at = static_cast<size_t>(mask);
  const bool planes = call.inputs.at(at).shape.size() == 2;
  if (!planes) split.split_input(at, 1, heads);
  letters.inputs.push_back(planes ? text.mask : "bgr" + text.mask);
}

OpRule of_letters(const SplitDims& split, const Letters& letters, double flops) {
  OpRule rule = split.rule(letters);
  rule.flops_per_element = flops;
  return rule;
}

// (q, k, v[, rows], …, mask) -> results with one number per query and head; the first result has the width of v where
// `wide` is set. `with_rows`: operand 3 has one number per query and head, too.
OpRule forward(const Call& call, const Marks& marks, size_t mask_arg, bool wide, bool with_rows) {
  const Texts text = texts(marks);
  const int64_t heads = key_heads(call, 1);
  SplitDims split(call);
  split.split_input(0, 1, heads);
  Letters letters{{text.query, text.key, text.key}, {}};
  if (with_rows) {
    split.split_input(3, 1, heads);
    letters.inputs.push_back(text.rows);
  }
  add_mask(split, letters, call, operand(call, mask_arg), heads, text);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    split.split_output(i, 1, heads);
    letters.outputs.push_back(wide && i == 0 ? text.query : text.rows);
  }
  return of_letters(split, letters, 4);
}

// (grad, q, k, v, out, logsumexp, …) -> (dq, dk, dv)
OpRule backward(const Call& call, const Marks& marks, size_t mask_arg) {
  const Texts text = texts(marks);
  const int64_t heads = key_heads(call, 2);
  SplitDims split(call);
  for (size_t i : {0, 1, 4, 5}) split.split_input(i, 1, heads);
  split.split_output(0, 1, heads);
  Letters letters{{text.query, text.query, text.key, text.key, text.query, text.rows},
                  {text.query, text.key, text.key}};
  add_mask(split, letters, call, operand(call, mask_arg), heads, text);
  return of_letters(split, letters, 10);
}

}  // namespace

// (q, k, v, dropout_p, is_causal, attn_mask, scale) -> (out, logsumexp)
OpRule attention(const Call& call) { return forward(call, kWhole, 5, true, false); }

// (grad, q, k, v, out, logsumexp, dropout_p, is_causal, attn_mask, scale) -> (dq, dk, dv)
OpRule attention_backward(const Call& call) { return backward(call, kWhole, 8); }

// (q, k, v, is_causal, attn_mask, scale, query_start, key_start) -> (out, logsumexp)
OpRule attention_block(const Call& call) { return forward(call, kBlock, 4, true, false); }

// The same arguments -> (a number near the largest score of each query)
OpRule attention_top(const Call& call) {
  OpRule rule = forward(call, kSummed, 4, false, false);
  for (Factor& factor : rule.factors)
    if (factor.kind == FactorKind::reduce) factor.reduction = Reduction::max;
  return rule;
}

// (q, k, v, top, is_causal, …) -> (Σ exp(s − top)·v, Σ exp(s − top))
OpRule attention_sums(const Call& call) { return forward(call, kSummed, 5, true, true); }

// (grad, q, k, v, out, logsumexp, is_causal, attn_mask, scale, query_start, key_start) -> (dq, dk, dv)
OpRule attention_block_backward(const Call& call) { return backward(call, kSummed, 7); }

namespace {

// The arguments of the spmdx op: the tensors, then ATen's from argument `causal` on, then the starts of both sequences.
// ATen's dropout_p, the argument before, is left out: it is 0.
std::vector<Arg> block_args(const Call& call, size_t tensors, size_t causal) {
  std::vector<Arg> args;
  for (uint32_t i = 0; i < tensors; ++i) args.push_back(TensorArg{i});
  for (size_t i = causal; i < causal + 3; ++i) args.push_back(argument(call, i));
  args.push_back(int64_t{0});
  args.push_back(int64_t{0});
  return args;
}

// The scale of the scores, if it is a parameter of the plan; `args` then refer to it as parameter 0.
Scalar kept_scale(const Node& node, std::vector<Arg>& args) {
  for (Arg& arg : args)
    if (const auto* real = std::get_if<RealParam>(&arg)) {
      const Scalar scale{RealParam{0}, 1, node.param + real->index};
      arg = RealParam{0};
      return scale;
    }
  return {};
}

ValueId emit(OpBuilder& maths, const Node& node, const char* op, std::vector<Arg> args, Values inputs,
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
  OpBuilder maths(builder, node);
  const Call& call = maths.call();
  return several(emit(maths, node, "spmdx.attention", block_args(call, 3, 4), node.inputs, call.outputs), 2);
}

Values expand_attention_backward(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const Call& call = maths.call();
  return several(emit(maths, node, "spmdx.attention_backward", block_args(call, 6, 7), node.inputs, call.outputs), 3);
}

// With cut keys each device sums exp(score − top) over its own keys. `top` must be the same number on all devices.
Values expand_attention_block(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
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

// The last two arguments are the starts of the queries and of the keys.
void attention_starts(const Call&, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  args.at(args.size() - 2) = inputs.at(0).at(2).start;
  args.at(args.size() - 1) = inputs.at(1).at(2).start;
}

void attention_backward_starts(const Call&, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  args.at(args.size() - 2) = inputs.at(1).at(2).start;
  args.at(args.size() - 1) = inputs.at(2).at(2).start;
}

}  // namespace spmdx::rules
