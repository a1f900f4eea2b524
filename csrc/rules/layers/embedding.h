// SPDX-License-Identifier: Apache-2.0
// Embeddings: looking up rows of a table that may be cut, and the gradient of the table.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

OpRule embedding_backward(const Call& call);  // of embedding_dense_backward: rows of the table are composite
OpRule embedding_rows(const Call& call);      // of spmdx.embedding_rows: rows of the table pass
OpRule masked_embedding(const Call& call);    // of spmdx.masked_embedding: rows of the table are summed over

Values expand_embedding(Builder& builder, const Node& node);           // into spmdx.masked_embedding
Values expand_embedding_backward(Builder& builder, const Node& node);  // into spmdx.embedding_rows

// Localise functions: the first row of the table on this device; the first row and the number of rows.
void table_start(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void embedding_box(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx::rules
