// SPDX-License-Identifier: Apache-2.0
// CTC losses: arguments list the lengths of all sequences; the kernel takes those of its shard, from `start` on.
#include "rules/layers/ctc.h"

#include "rules/build/letters.h"
#include "rules/build/op_builder.h"
#include "rules/tensors/pointwise.h"

namespace spmdx::rules {
namespace {

// Letters of the targets: one row per sequence, or the targets of all sequences in one row, which may not be cut.
std::string targets(const TensorType& type) { return type.shape.size() == 2 ? "nS!" : "S!"; }

// The node with the name `op`, and with one argument more: the first sequence of the shard, 0 until it is localised.
Values with_start(Builder& builder, const Node& node, const char* op) {
  OpBuilder maths(builder, node);
  std::vector<Arg> args = maths.call().args;
  args.emplace_back(int64_t{0});
  const ValueId first = maths.emit(op, std::move(args), node.inputs, maths.call().outputs);
  Values results;
  for (size_t i = 0; i < maths.call().outputs.size(); ++i) results.push_back(first + static_cast<ValueId>(i));
  return results;
}

OpRule forward(const Call& call, const std::string& batch) {
  if (call.inputs[0].shape.size() != 3) return replicated(call);
  return from_letters(call, {{"T!" + batch + "C!", targets(call.inputs[1])}, {"n", "nT!A!"}});
}

OpRule backward(const Call& call, const std::string& batch) {
  if (call.inputs[1].shape.size() != 3) return replicated(call);
  const std::string scores = "T!" + batch + "C!";
  return from_letters(call, {{"n", scores, targets(call.inputs[2]), "n", "nT!A!"}, {scores}});
}

}  // namespace

// (scores [time, batch, classes], targets, input_lengths, target_lengths, blank, zero_infinity[, start])
OpRule ctc_loss(const Call& call) { return forward(call, "n^"); }

OpRule ctc_block(const Call& call) { return forward(call, "n"); }

// (grad, scores, targets, input_lengths, target_lengths, loss, alphas, blank, zero_infinity[, start])
OpRule ctc_loss_backward(const Call& call) { return backward(call, "n^"); }

OpRule ctc_block_backward(const Call& call) { return backward(call, "n"); }

Values expand_ctc_loss(Builder& builder, const Node& node) { return with_start(builder, node, "spmdx.ctc_loss"); }

Values expand_ctc_loss_backward(Builder& builder, const Node& node) {
  return with_start(builder, node, "spmdx.ctc_loss_backward");
}

// Sets the last argument. Operand 0 is the scores [time, batch, classes] in forward, one gradient per sequence in
// backward.
void ctc_start(const Call&, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  args.back() = inputs.at(0).at(inputs.at(0).size() == 1 ? 0 : 1).start;
}

}  // namespace spmdx::rules
