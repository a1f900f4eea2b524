// SPDX-License-Identifier: Apache-2.0
// Attention: batch and heads pass, several heads of queries may share one of keys; sequences are composite.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule attention(const Call& call);
OpRule attention_backward(const Call& call);
OpRule attention_block(const Call& call);  // spmdx.attention, and the ones that it is made of
OpRule attention_top(const Call& call);
OpRule attention_sums(const Call& call);
OpRule attention_block_backward(const Call& call);

Values expand_attention(Builder& builder, const Node& node);  // into the op that knows where its blocks begin
Values expand_attention_backward(Builder& builder, const Node& node);
Values expand_attention_block(Builder& builder, const Node& node);  // for cut keys: two passes

void attention_starts(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void attention_backward_starts(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
