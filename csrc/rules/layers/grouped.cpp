// SPDX-License-Identifier: Apache-2.0
// Grouped products: groups ('g') and the grouped dim ('t') may be cut anywhere, also inside of a group. Offsets stay
// global, so each device is told where its shard begins.
#include "rules/layers/grouped.h"

#include <algorithm>

#include "graph/args.h"
#include "rules/build/letters.h"
#include "rules/build/op_builder.h"
#include "rules/tensors/pointwise.h"

namespace spmdx::rules {
namespace {

// The dim that offsets divide: rows of the first operand, columns of the second, or the contracted dim. With `batch`
// there are no offsets: both operands are stacks of matrices.
enum class Grouping { rows, columns, contraction, batch };

Grouping grouping_of(const Call& call) {
  const bool first = call.inputs.at(0).shape.size() == 3, second = call.inputs.at(1).shape.size() == 3;
  if (first) return second ? Grouping::batch : Grouping::columns;
  return second ? Grouping::rows : Grouping::contraction;
}

// Of the group and the grouped dim, one passes through the product and one is summed over: the marks of both.
OpRule grouped(const Call& call, const std::string& passes, const std::string& sums) {
  Letters letters;
  switch (grouping_of(call)) {
    case Grouping::rows:
      letters = {{"t" + passes + "k", "g" + sums + "kn"}, {"tn"}};
      break;
    case Grouping::columns:
      letters = {{"g" + sums + "mk", "kt" + passes}, {"mt"}};
      break;
    case Grouping::contraction:
      letters = {{"mt" + sums, "tn"}, {"g" + passes + "mn"}};
      break;
    case Grouping::batch:
      letters = {{"bmk", "bkn"}, {"bmn"}};
      break;
  }
  if (call.inputs.size() == 2) return from_letters(call, letters);
  letters.inputs.push_back("O!");
  OpRule rule = from_letters(call, letters);
  const auto groups =
      static_cast<double>(call.inputs[2].shape.at(0));  // a row meets one group only; the dim of offsets is no work
  rule.product = true;
  rule.flops_per_element = 2 / std::max(1.0, groups * groups);
  return rule;
}

}  // namespace

// (a, b, offsets, bias, dtype)
OpRule grouped_mm(const Call& call) { return operand(call, 3) >= 0 ? replicated(call) : grouped(call, "^", "+"); }

// (a, b, offsets, start of the grouped dim, first group)
OpRule grouped_block(const Call& call) { return grouped(call, "", ""); }

Values expand_grouped_mm(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  return {maths.emit("spmdx.grouped_mm", {TensorArg{0}, TensorArg{1}, TensorArg{2}, int64_t{0}, int64_t{0}},
                     node.inputs, {maths.output(0)})};
}

void group_starts(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args) {
  const Grouping grouping = grouping_of(call);
  const Box& stack = grouping == Grouping::rows      ? inputs.at(1)
                     : grouping == Grouping::columns ? inputs.at(0)
                                                     : outputs.at(0);
  const Range grouped = grouping == Grouping::rows      ? inputs.at(0).at(0)
                        : grouping == Grouping::columns ? inputs.at(1).at(1)
                                                        : inputs.at(0).at(1);
  args.at(3) = grouped.start;
  args.at(4) = stack.at(0).start;
}

}  // namespace spmdx::rules
