// SPDX-License-Identifier: Apache-2.0
// Rules of softmax and the norms: normalised dims are composite, all others pass (or are summed in weight gradients).
#include "rules/families.h"
#include "rules/row.h"
#include "rules/split_dims.h"

namespace spmdx {
namespace {

// "ab" + "c^d^": leading dims, then `rank` normalised ones.
std::string normalised(size_t leading, size_t rank, const char* mark = "^") {
  std::string text = dims(leading);
  for (size_t d = 0; d < rank; ++d) text += static_cast<char>('n' + static_cast<char>(d)) + std::string(mark);
  return text;
}

std::string statistics(size_t leading, size_t rank) { return dims(leading) + std::string(rank, '_'); }

// A tensor whose channels are dim 1: batch and spatial dims marked, the channel 'c'.
std::string channels(size_t rank, char mark) {
  std::string text;
  for (size_t d = 0; d < rank; ++d) {
    if (d == 1)
      text += 'c';
    else
      text += static_cast<char>('p' + static_cast<char>(d));
    if (d != 1 && mark) text += mark;
  }
  return text;
}

// Per-channel tensors have the letter c, those that an op leaves empty have none.
std::string channel_or_nothing(const TensorType& type, int64_t count) {
  if (type.shape.empty()) return "";
  return type.shape[0] == count ? "c" : "_";
}

}  // namespace

// Also its gradient, whose operands are alike.
OpRule softmax(const Call& call) {
  const size_t rank = call.inputs[0].shape.size();
  std::string text = dims(rank);
  if (rank > 0) text.insert(static_cast<size_t>(normal_dim(integer(call, row_of(call).arg, -1), rank)) + 1, "^");
  return from_letters(call, {std::vector<std::string>(call.inputs.size(), text), {text}});
}

// A row at a time, and a mask of its own for each element; also its gradient.
OpRule masked_softmax(const Call& call) {
  const size_t rank = call.inputs[0].shape.size();
  std::string text = dims(rank);
  if (rank > 0) text.insert(static_cast<size_t>(normal_dim(integer(call, row_of(call).arg, -1), rank)) + 1, "!");
  return from_letters(call, {std::vector<std::string>(call.inputs.size(), text), {text}});
}

// (v, g, dim) -> (w, norms) and its gradients: the norm is over all dims but one.
OpRule weight_norm(const Call& call) {
  const size_t rank = call.inputs[0].shape.size();
  const auto dim = static_cast<size_t>(normal_dim(integer(call, call.args.size() - 1, 0), rank));
  std::string weights = dims(rank, 'a', '!');
  weights.erase(2 * dim + 1, 1);
  const std::string norms =
      std::string(dim, '_') + static_cast<char>('a' + static_cast<char>(dim)) + std::string(rank - dim - 1, '_');
  const auto letters_of = [&](const TensorType& type) { return type.shape == call.inputs[0].shape ? weights : norms; };
  Letters letters;
  for (const TensorType& type : call.inputs) letters.inputs.push_back(letters_of(type));
  for (const TensorType& type : call.outputs) letters.outputs.push_back(letters_of(type));
  return from_letters(call, letters);
}

// (x, normalized_shape, weight, bias, eps) -> (out, mean, rstd)
OpRule layer_norm(const Call& call) {
  const size_t rank = integers(call, 1).size(), leading = call.inputs[0].shape.size() - rank;
  const std::string x = normalised(leading, rank), rows = statistics(leading, rank);
  Letters letters{{x}, {x, rows, rows}};
  while (letters.inputs.size() < call.inputs.size()) letters.inputs.push_back(normalised(0, rank));
  return from_letters(call, letters);
}

// (grad, x, normalized_shape, mean, rstd, weight, bias, mask) -> (dx, dw, db)
OpRule layer_norm_backward(const Call& call) {
  const size_t rank = integers(call, 2).size(), leading = call.inputs[1].shape.size() - rank;
  const std::string x = normalised(leading, rank), rows = statistics(leading, rank), w = normalised(0, rank);
  Letters letters{{x, x, rows, rows}, {x, w, w}};
  while (letters.inputs.size() < call.inputs.size()) letters.inputs.push_back(w);
  return from_letters(call, letters);
}

// (x, normalized_shape, weight, eps) -> (out, rstd)
OpRule rms_norm(const Call& call) {
  const size_t rank = integers(call, 1).size(), leading = call.inputs[0].shape.size() - rank;
  const std::string x = normalised(leading, rank, "!");
  Letters letters{{x}, {x, statistics(leading, rank)}};
  if (call.inputs.size() > 1) letters.inputs.push_back(normalised(0, rank, "!"));
  return from_letters(call, letters);
}

// (grad, x, normalized_shape, rstd, weight, mask) -> (dx, dw)
OpRule rms_norm_backward(const Call& call) {
  const size_t rank = integers(call, 2).size(), leading = call.inputs[1].shape.size() - rank;
  const std::string x = normalised(leading, rank, "!"), w = normalised(0, rank, "!");
  Letters letters{{x, x, statistics(leading, rank)}, {x, w}};
  if (call.inputs.size() > 3) letters.inputs.push_back(w);
  return from_letters(call, letters);
}

// (x, weight, bias, N, C, HxW, group, eps) -> (out, mean, rstd): channels are (group, one of its own).
OpRule group_norm(const Call& call) {
  const int64_t groups = integer(call, 6, 1);
  const std::string x = "bgc^" + dims(call.inputs[0].shape.size() - 2, 'p', '^');
  SplitDims split(call);
  split.split_input(0, 1, groups);
  split.split_output(0, 1, groups);
  Letters letters{{x}, {x, "bg", "bg"}};
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    split.split_input(i, 0, groups);
    letters.inputs.push_back("gc");
  }
  return split.rule(letters);
}

// (grad, x, mean, rstd, weight, N, C, HxW, group, mask) -> (dx, dw, db)
OpRule group_norm_backward(const Call& call) {
  const int64_t groups = integer(call, 8, 1);
  const std::string x = "bgc^" + dims(call.inputs[1].shape.size() - 2, 'p', '^');
  SplitDims split(call);
  for (size_t i : {0, 1}) split.split_input(i, 1, groups);
  if (produced(call.outputs[0])) split.split_output(0, 1, groups);
  for (size_t i : {1, 2})
    if (produced(call.outputs[i])) split.split_output(i, 0, groups);
  Letters letters{{x, x, "bg", "bg"}, {x, "gc", "gc"}};
  if (call.inputs.size() > 4) {
    split.split_input(4, 0, groups);
    letters.inputs.push_back("gc");
  }
  return split.rule(letters);
}

bool keeps_statistics(const Call& call) { return !call.op.ends_with(".no_stats"); }

// (x, weight, bias[, running_mean, running_var], training, momentum, eps) -> (out, mean, invstd[, running…])
OpRule batch_norm(const Call& call) {
  const size_t rank = call.inputs[0].shape.size();
  const int64_t count = call.inputs[0].shape.at(1);
  // In evaluation the statistics are given, so batch and space pass.
  const std::string x = channels(rank, boolean(call, keeps_statistics(call) ? 5 : 3, true) ? '^' : '.');
  Letters letters{{x}, {x}};
  for (size_t i = 1; i < call.inputs.size(); ++i) letters.inputs.push_back(channel_or_nothing(call.inputs[i], count));
  for (size_t i = 1; i < call.outputs.size(); ++i)
    letters.outputs.push_back(channel_or_nothing(call.outputs[i], count));
  return from_letters(call, letters);
}

// (grad, x, weight, running_mean, running_var, save_mean, save_invstd, train 7, eps, mask) -> (dx, dw, db)
OpRule batch_norm_backward(const Call& call) {
  const size_t rank = call.inputs[1].shape.size();
  const int64_t count = call.inputs[1].shape.at(1);
  const std::string x = channels(rank, boolean(call, 7, true) ? '^' : '\0');
  Letters letters{{x, x}, {x, "c", "c"}};
  for (size_t i = 2; i < call.inputs.size(); ++i) letters.inputs.push_back(channel_or_nothing(call.inputs[i], count));
  return from_letters(call, letters);
}

}  // namespace spmdx
