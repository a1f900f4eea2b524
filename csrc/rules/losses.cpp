// SPDX-License-Identifier: Apache-2.0
// Rules of losses: without reduction pointwise, as a sum partial, as a mean composite (the count is global).
#include <algorithm>

#include "rules/families.h"
#include "rules/row.h"

namespace spmdx {
namespace {

enum : int64_t { kNoReduction = 0, kMean = 1 };

int64_t reduction_of(const Call& call) { return integer(call, row_of(call).arg, kMean); }

// (self, target, …) of a row's classes together, which are whole: n for the rows, and one number each.
std::string of_rows(const TensorType& type, const char* row_mark) {
  if (type.shape.size() == 2) return "n" + std::string(row_mark) + "C!";
  return type.shape.empty() ? "" : "n";
}

// Class dim 1, all others are rows ('b', and from 'd' for nll_loss2d).
std::string scores(size_t rank, const char* row_mark, const char* class_mark) {
  std::string text;
  for (size_t d = 0; d < rank; ++d)
    text += static_cast<char>('b' + static_cast<char>(d)) + std::string(d == 1 ? class_mark : row_mark);
  return text;
}

// One class of a row is looked at, not all of them.
OpRule once_a_row(OpRule rule, const TensorType& scores) {
  rule.flops_per_element = 1 / static_cast<double>(std::max<int64_t>(scores.shape.at(1), 1));
  return rule;
}

std::string rows(size_t rank) {
  std::string text;
  for (size_t d = 0; d < rank; ++d)
    if (d != 1) text += static_cast<char>('b' + static_cast<char>(d));
  return text;
}

}  // namespace

OpRule loss(const Call& call) {
  const int64_t reduction = reduction_of(call);
  if (reduction == kNoReduction) return pointwise(call);
  const char* text = reduction == kMean ? "*+" : "*";
  return from_letters(call, {std::vector<std::string>(call.inputs.size(), text), {""}});
}

// (grad, self, target, …): grad is a scalar unless there is no reduction; a mean divides by the local count.
OpRule loss_backward(const Call& call) {
  const char* text = reduction_of(call) == kMean ? "*^" : "*";
  Letters letters{std::vector<std::string>(call.inputs.size(), text), {text}};
  if (call.inputs[0].shape.empty()) letters.inputs[0] = "";
  return from_letters(call, letters);
}

// (self, target, …, reduction) -> (output[, is_target]); a weight is one of the classes.
OpRule margin_loss(const Call& call) {
  if (call.inputs[0].shape.size() != 2) return replicated(call);
  const bool each = reduction_of(call) == kNoReduction;
  Letters letters;
  for (const TensorType& type : call.inputs) letters.inputs.push_back(of_rows(type, each ? "" : "+"));
  if (call.inputs.size() > 2) letters.inputs[2] = "C!";
  for (const TensorType& type : call.outputs) letters.outputs.push_back(of_rows(type, ""));
  return from_letters(call, letters);
}

// (grad, self, target, …, reduction, …) -> dself; a mean divides by the local count. A weight is one of the classes.
OpRule margin_loss_backward(const Call& call) {
  if (call.inputs[1].shape.size() != 2) return replicated(call);
  const char* mark = reduction_of(call) == kMean ? "^" : ".";
  Letters letters;
  for (const TensorType& type : call.inputs) letters.inputs.push_back(of_rows(type, mark));
  if (const int weight = operand(call, 5); weight >= 0) letters.inputs.at(static_cast<size_t>(weight)) = "C!";
  return from_letters(call, {letters.inputs, {"nC!"}});
}

// (self, target, weight, reduction, ignore_index) -> (output, total_weight)
OpRule nll_loss(const Call& call) {
  const size_t rank = call.inputs[0].shape.size();
  if (rank < 2) return replicated(call);
  const bool whole = integer(call, 3, kMean) == kNoReduction;
  Letters letters{{scores(rank, whole ? "." : "+", "+"), rows(rank)}, {whole ? rows(rank) : "", ""}};
  if (call.inputs.size() > 2) letters.inputs.push_back("c");
  if (!call.outputs[1].shape.empty()) letters.outputs[1] = "_";
  return once_a_row(from_letters(call, letters), call.inputs[0]);
}

// (grad, self, target, weight, reduction, ignore_index, total_weight) -> dself
OpRule nll_loss_backward(const Call& call) {
  const size_t rank = call.inputs[1].shape.size();
  if (rank < 2) return replicated(call);
  const std::string x = scores(rank, ".", "+");
  Letters letters{{call.inputs[0].shape.empty() ? "" : rows(rank), x, rows(rank)}, {x}};
  if (operand(call, 3) >= 0) letters.inputs.push_back("c");
  letters.inputs.push_back(call.inputs.back().shape.empty() ? "" : "_");
  return from_letters(call, letters);
}

// (scores, target[, weight]) -> (rows, weights): each row is found by the device that has its class.
OpRule nll_rows(const Call& call) {
  const size_t rank = call.inputs[0].shape.size();
  Letters letters{{scores(rank, "", ""), rows(rank)}, {rows(rank), rows(rank)}};
  if (call.inputs.size() > 2) letters.inputs.push_back("c");
  return once_a_row(from_letters(call, letters), call.inputs[0]);
}

// (rows, target, dim, start, count): the new dim of the result is a factor of its own.
OpRule place(const Call& call) {
  const std::string rows = dims(call.inputs[0].shape.size());
  std::string result = rows;
  result.insert(static_cast<size_t>(integer(call, 2, 0)), "Z");
  return from_letters(call, {{rows, rows}, {result}});
}

}  // namespace spmdx
