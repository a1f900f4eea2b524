// SPDX-License-Identifier: Apache-2.0
// Embeddings: rows of a table, and its gradient.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule embedding_backward(const Call& call);
OpRule embedding_rows(const Call& call);    // spmdx.embedding_rows
OpRule masked_embedding(const Call& call);  // spmdx.masked_embedding

Values expand_embedding(Builder& builder, const Node& node);
Values expand_embedding_backward(Builder& builder, const Node& node);

void table_start(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void embedding_box(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
