// SPDX-License-Identifier: Apache-2.0
// Attributes that speak of sizes or positions, for the boxes of one device. All others are the same everywhere.
#include "rules/localise.h"

#include "base/error.h"
#include "graph/args.h"
#include "rules/row.h"

namespace spmdx {
namespace {

std::vector<int64_t> extents(const Box& box) {
  std::vector<int64_t> sizes;
  for (const Range& range : box) sizes.push_back(range.extent);
  return sizes;
}

std::vector<int64_t> starts(const Box& box) {
  std::vector<int64_t> result;
  for (const Range& range : box) result.push_back(range.start);
  return result;
}

}  // namespace

void sizes(const Call& call, const Boxes&, const Boxes& outputs, std::vector<Arg>& args) {
  const size_t at = row_of(call).sizes;
  internal_check(at < args.size(), "an op without its sizes");
  args[at] = extents(outputs.at(0));
}

// (sizes, starts, extents, …)
void random_box(const Call&, const Boxes&, const Boxes& outputs, std::vector<Arg>& args) {
  internal_check(args.size() > 2, "a random op without its box");
  args[1] = starts(outputs.at(0));
  args[2] = extents(outputs.at(0));
}

// Random ops of ATen: after all arguments the global sizes, and where the box begins.
void random_place(const Call& call, const Boxes&, const Boxes& outputs, std::vector<Arg>& args) {
  args.emplace_back(std::vector<int64_t>(call.outputs.at(0).shape));
  args.emplace_back(starts(outputs.at(0)));
}

// Global j − i ≤ k is local j' − i' ≤ k + row start − column start.
void diagonal_offset(const Call& call, const Boxes&, const Boxes& outputs, std::vector<Arg>& args) {
  const Box& box = outputs.at(0);
  internal_check(box.size() >= 2, "tril or triu of fewer than two dims");
  if (args.size() < 2) args.resize(2, int64_t{0});
  args[1] = integer(call, 1, 0) + box[box.size() - 2].start - box[box.size() - 1].start;
}

// (start, end, step, …), whole numbers
void arange_range(const Call& call, const Boxes&, const Boxes& outputs, std::vector<Arg>& args) {
  const auto* first = std::get_if<int64_t>(&args.at(0));
  if (!first) return;  // not cut, see the family
  const int64_t step = integer(call, 2, 1);
  const Range range = outputs.at(0).at(0);
  const int64_t start = *first + range.start * step;
  args[0] = start;
  args[1] = start + range.extent * step;
}

// spmdx.masked_embedding(weight, indices, start)
void table_start(const Call&, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  args.at(2) = inputs.at(0).at(0).start;
}

// spmdx.nll_rows(scores, target, weight, ignore_index, start, classes)
void nll_start(const Call&, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  args.at(4) = inputs.at(0).at(1).start;
}

// spmdx.place(rows, target, dim, start, count)
void place_box(const Call&, const Boxes&, const Boxes& outputs, std::vector<Arg>& args) {
  const Range range = outputs.at(0).at(static_cast<size_t>(std::get<int64_t>(args.at(2))));
  args.at(3) = range.start;
  args.at(4) = range.extent;
}

// spmdx.embedding_rows(grad, indices, start, rows, …)
void embedding_box(const Call&, const Boxes&, const Boxes& outputs, std::vector<Arg>& args) {
  args.at(2) = outputs.at(0).at(0).start;
  args.at(3) = outputs.at(0).at(0).extent;
}

// The last argument: the first sequence here. The first operand is the scores, or the gradient of each sequence.
void ctc_start(const Call&, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  args.back() = inputs.at(0).at(inputs.at(0).size() == 1 ? 0 : 1).start;
}

// The last two arguments: where the queries and the keys begin.
void attention_starts(const Call&, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  args.at(args.size() - 2) = inputs.at(0).at(2).start;
  args.at(args.size() - 1) = inputs.at(1).at(2).start;
}
void attention_backward_starts(const Call&, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  args.at(args.size() - 2) = inputs.at(1).at(2).start;
  args.at(args.size() - 1) = inputs.at(2).at(2).start;
}

// (x, weight, bias, N, C, HxW, group, eps) -> (out, mean [N, group], …)
void group_norm_sizes(const Call&, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args) {
  args.at(3) = inputs.at(0).at(0).extent;
  args.at(4) = inputs.at(0).at(1).extent;
  args.at(6) = outputs.at(1).at(1).extent;
}
// (grad, x, mean, rstd, weight, N, C, HxW, group, mask)
void group_norm_backward_sizes(const Call&, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  args.at(5) = inputs.at(1).at(0).extent;
  args.at(6) = inputs.at(1).at(1).extent;
  args.at(8) = inputs.at(2).at(1).extent;
}

// convolution_backward: the bias has as many elements as the local gradient has channels.
void bias_size(const Call&, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  if (std::holds_alternative<std::vector<int64_t>>(args.at(3)))
    args[3] = std::vector<int64_t>{inputs.at(0).at(1).extent};
}

}  // namespace spmdx
