// SPDX-License-Identifier: Apache-2.0
// Rules of attention: batch and heads pass, several heads of queries may share one of keys; sequences are composite.
#include <algorithm>

#include "base/error.h"
#include "rules/build/split_dims.h"
#include "rules/families.h"

namespace spmdx {
namespace {

// Marks of the two sequences.
struct Marks {
  std::string query, key;
};

const Marks kWhole = {"+", "+"};  // ATen's ops: an expansion says where the sequences begin
const Marks kBlock = {".", "+"};  // spmdx.attention: queries pass, keys need two passes
const Marks kSummed = {"", ""};   // sums and maxima over keys, gradients

// A query head is (kv head g, one of the r that share it); out is (b, g, r, queries, width).
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

// (q, k, v …) -> results of one row each, the first as wide as v where `wide`. The mask is argument `mask_arg`.
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

// The same -> (a number near each row's largest score)
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

// A mask of type 1 has a row for each sequence, one of type 2 a matrix for each sequence and head; of type 0 there is
// one matrix for all.
bool is_mask_by_sequence(const Call& call, size_t mask_type) { return integer(call, mask_type, 0) > 0; }

// A layer in one kernel: sequences pass, weights are whole.
OpRule by_sequence(const Call& call, size_t sequences, size_t mask, size_t mask_type) {
  const auto whole_but_first = [](const TensorType& type) { return "b" + std::string(type.shape.size() - 1, '_'); };
  Letters letters;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const bool first =
        i < sequences || (static_cast<int>(i) == operand(call, mask) && is_mask_by_sequence(call, mask_type));
    letters.inputs.push_back(first ? whole_but_first(call.inputs[i]) : std::string(call.inputs[i].shape.size(), '_'));
  }
  for (const TensorType& type : call.outputs) letters.outputs.push_back(produced(type) ? whole_but_first(type) : "");
  return from_letters(call, letters);
}

}  // namespace

// (src, …, mask 18, mask_type)
OpRule encoder_layer(const Call& call) { return by_sequence(call, 1, 18, 19); }
// (query, key, value, …, mask 9, need_weights, average, mask_type)
OpRule multi_head_attention(const Call& call) { return by_sequence(call, 3, 9, 12); }

}  // namespace spmdx
