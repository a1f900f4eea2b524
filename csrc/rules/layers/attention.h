// SPDX-License-Identifier: Apache-2.0
// Attention: batch and heads pass, where several query heads may share one key head; both sequences are composite.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule attention(const Call& call);                 // of ATen's CPU flash attention
OpRule attention_backward(const Call& call);        // of its backward
OpRule attention_block(const Call& call);           // of spmdx.attention: queries pass, keys are composite
OpRule attention_top(const Call& call);             // of spmdx.attention_top: a maximum over keys
OpRule attention_sums(const Call& call);            // of spmdx.attention_sums: sums over keys
OpRule attention_block_backward(const Call& call);  // of spmdx.attention_backward

// ATen's ops become spmdx.attention and its backward, whose arguments say where their sequences begin.
Values expand_attention(Builder& builder, const Node& node);
Values expand_attention_backward(Builder& builder, const Node& node);
// With cut keys spmdx.attention becomes spmdx.attention_top and spmdx.attention_sums.
Values expand_attention_block(Builder& builder, const Node& node);

// Localise functions: the starts of the local queries and keys.
void attention_starts(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void attention_backward_starts(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
