// SPDX-License-Identifier: Apache-2.0
// Embeddings: with a cut table, each device handles the indices of its own rows.
#include "rules/layers/embedding.h"

#include <algorithm>

#include "graph/args.h"
#include "rules/build/letters.h"
#include "rules/build/op_builder.h"

namespace spmdx::rules {

// (grad, indices, num_weights, padding_idx, scale_grad_by_freq). With scale_grad_by_freq the indices may not be cut:
// the op counts how often each occurs. flops_per_element divides by the rows of the table, which cost no work by
// themselves.
OpRule embedding_backward(const Call& call) {
  const bool by_frequency = boolean(call, 4, false);
  OpRule rule = from_letters(call, by_frequency ? Letters{{"*!Z", "*!"}, {"V+Z"}} : Letters{{"*Z", "*"}, {"V+Z"}});
  rule.linearity = Linearity::joint;
  rule.linear_inputs = 1;
  rule.flops_per_element = 1 / static_cast<double>(std::max<int64_t>(call.outputs[0].shape.at(0), 1));
  return rule;
}

// (grad, indices, start, rows, total, padding_idx, scale_grad_by_freq)
OpRule embedding_rows(const Call& call) {
  const bool by_frequency = boolean(call, 6, false);
  OpRule rule = from_letters(call, by_frequency ? Letters{{"*!Z", "*!"}, {"VZ"}} : Letters{{"*Z", "*"}, {"VZ"}});
  rule.flops_per_element = 1 / static_cast<double>(std::max<int64_t>(call.outputs[0].shape.at(0), 1));
  return rule;
}

// (weight, indices, start, number of rows of the whole table)
OpRule masked_embedding(const Call& call) {
  OpRule rule = from_letters(call, {{"vd", "*"}, {"*d"}});
  rule.flops_per_element = 1 / static_cast<double>(std::max<int64_t>(call.inputs[0].shape.at(0), 1));
  return rule;
}

// Each device looks up the indices of its own rows, and gives zeros for all others; the sum over devices is the result.
Values expand_embedding(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  return {maths.emit("spmdx.masked_embedding", {TensorArg{0}, TensorArg{1}, int64_t{0}, maths.shape(maths.input(0))[0]},
                     {maths.input(0), maths.input(1)}, {maths.output(0)})};
}

// Each device adds the gradients of its own rows.
Values expand_embedding_backward(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const int64_t rows = maths.output(0).shape.at(0);
  return {maths.emit("spmdx.embedding_rows",
                     {TensorArg{0}, TensorArg{1}, int64_t{0}, rows, rows, integer(maths.call(), 3, -1),
                      boolean(maths.call(), 4, false)},
                     {maths.input(0), maths.input(1)}, {maths.output(0)})};
}

// spmdx.masked_embedding(weight, indices, start, …)
void table_start(const Call&, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  args.at(2) = inputs.at(0).at(0).start;
}

// spmdx.embedding_rows(grad, indices, start, rows, …)
void embedding_box(const Call&, const Boxes&, const Boxes& outputs, std::vector<Arg>& args) {
  args.at(2) = outputs.at(0).at(0).start;
  args.at(3) = outputs.at(0).at(0).extent;
}

}  // namespace spmdx::rules
