// SPDX-License-Identifier: Apache-2.0
// Norms over the last dims: these are composite in layer_norm, and whole in rms_norm. The leading dims pass; gradients
// of weights are sums over them.
#include "rules/layers/layer_norm.h"

#include "graph/args.h"
#include "rules/build/letters.h"
#include "rules/build/norm_maths.h"

namespace spmdx::rules {
namespace {

// Letters of the leading dims, then of `rank` normalised dims with the mark: "ab" + "n^o^".
std::string normalised(size_t leading, size_t rank, const char* mark = "^") {
  std::string text = dims(leading);
  for (size_t d = 0; d < rank; ++d) text += static_cast<char>('n' + static_cast<char>(d)) + std::string(mark);
  return text;
}

std::string statistics(size_t leading, size_t rank) { return dims(leading) + std::string(rank, '_'); }

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> dims;
  for (; begin < end; ++begin) dims.push_back(begin);
  return dims;
}

// The sum over `dims`; with no dims, the value itself.
ValueId sum_over(OpBuilder& maths, ValueId value, const std::vector<int64_t>& dims) {
  return dims.empty() ? value : maths.sum(value, dims, false, maths.dtype(value));
}

}  // namespace

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

// (v, g, dim) -> (w, norms), and its backward. The norm is over all dims but `dim`.
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

Values expand_layer_norm(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const ValueId x = maths.wide(maths.input(0));
  const auto rank = static_cast<int64_t>(maths.shape(x).size());
  const auto normal = static_cast<int64_t>(integers(maths.call(), 1).size());
  const Normalised stats = normalise(maths, x, range(rank - normal, rank), maths.scalar(4));
  ValueId out = stats.xhat;
  if (int w = operand(maths.call(), 2); w >= 0) out = maths.mul(out, maths.input(static_cast<size_t>(w)));
  if (int b = operand(maths.call(), 3); b >= 0) out = maths.add(out, maths.input(static_cast<size_t>(b)));
  return {finish(maths, out, 0), finish(maths, stats.mean, 1), finish(maths, stats.rstd, 2)};
}

// (grad, x, normalized_shape, mean, rstd, weight, bias, mask)
Values expand_layer_norm_backward(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const ValueId grad = maths.wide(maths.input(0)), x = maths.wide(maths.input(1));
  const auto rank = static_cast<int64_t>(maths.shape(x).size());
  const auto leading = rank - static_cast<int64_t>(integers(maths.call(), 2).size());
  const ValueId rstd = maths.wide(maths.input(3));
  const ValueId xhat = maths.mul(maths.sub(x, maths.wide(maths.input(2))), rstd);
  Values results(3, kNone);
  if (wanted(maths, 0)) {
    const int w = operand(maths.call(), 5);
    const ValueId g = w >= 0 ? maths.mul(grad, maths.input(static_cast<size_t>(w))) : grad;
    results[0] = finish(maths, input_gradient(maths, g, xhat, rstd, range(leading, rank)), 0);
  }
  const std::vector<int64_t> rows = range(0, leading);
  if (wanted(maths, 1)) results[1] = finish(maths, sum_over(maths, maths.mul(grad, xhat), rows), 1);
  if (wanted(maths, 2)) results[2] = finish(maths, sum_over(maths, grad, rows), 2);
  return results;
}

}  // namespace spmdx::rules
