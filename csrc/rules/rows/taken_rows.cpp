// SPDX-License-Identifier: Apache-2.0
// Taken rows: along a cut dim each part of the result takes its rows from the parts of the operand that hold them.
#include "rules/rows/taken_rows.h"

#include <algorithm>

#include "graph/args.h"
#include "graph/rows.h"
#include "rules/build/acted_dims.h"
#include "rules/build/blocks.h"
#include "rules/build/letters.h"
#include "rules/build/parts.h"

namespace spmdx::rules {
namespace {

constexpr int64_t kLeastRows = 12;  // of fewer rows most devices would hold none

bool known(const Call& call, size_t arg) {
  return std::holds_alternative<int64_t>(argument(call, arg)) ||
         std::holds_alternative<std::monostate>(argument(call, arg));
}

// Of arguments (…, dim, start, end, step), of which `arg` is the dim. `longer` is the shape that is sliced.
TakenRows line_of(const Call& call, size_t arg, const Shape& longer, bool back) {
  const auto dim = static_cast<size_t>(normal_dim(integer(call, arg, 0), longer.size()));
  const int64_t start = integer(call, arg + 1, 0), rows = longer.at(dim);
  return {dim, std::clamp<int64_t>(start < 0 ? start + rows : start, 0, rows), integer(call, arg + 3, 1), back};
}

// constant_pad_nd(x, widths, value): widths are pairs (before, after), of the last dim first.
std::vector<TakenRows> padded(const Call& call) {
  const size_t rank = call.inputs.at(0).shape.size();
  const std::vector<int64_t> widths = integers(call, 1);
  std::vector<TakenRows> all;
  for (size_t i = 0; i < widths.size() / 2; ++i)
    if (widths[2 * i] != 0 || widths[2 * i + 1] != 0) all.push_back({rank - 1 - i, -widths[2 * i]});
  return all;
}

}  // namespace

int64_t TakenRows::count(const Range& some, const Range& own) const {
  // The range of i for which first + i·step lies in `of`.
  const auto elements = [&](const Range& of) {
    const int64_t start = ceil_div(of.start - first, step);
    return Range{start, ceil_div(of.stop() - first, step) - start};
  };
  return back ? overlap(own, elements(some)).extent : overlap(some, elements(own)).extent;
}

std::vector<int64_t> TakenRows::sources(int64_t rows, int64_t of) const {
  std::vector<int64_t> all(static_cast<size_t>(rows), -1);
  for (int64_t i = 0; i < (back ? of : rows); ++i) {
    const int64_t there = first + i * step;
    if (back && there < rows) all[static_cast<size_t>(there)] = i;
    if (!back && there >= 0 && there < of) all[static_cast<size_t>(i)] = there;
  }
  return all;
}

int64_t most_lacked(const TakenRows& rows, int64_t of, int64_t to, int64_t parts) {
  int64_t most = 0;
  for (int64_t i = 0; i < parts; ++i) {
    const Range mine = part_of(to, parts, i);
    most = std::max(most, rows.count(mine, {0, of}) - rows.count(mine, part_of(of, parts, i)));
  }
  return most;
}

std::vector<TakenRows> taken_rows(const Call& call) {
  const std::string_view op = base_name(call.op);
  const auto all_known = [&](size_t first) {
    return known(call, first) && known(call, first + 1) && known(call, first + 3);
  };
  if (op == "aten.slice" && all_known(1)) return {line_of(call, 1, call.inputs.at(0).shape, false)};
  if (op == "aten.slice_backward" && all_known(2)) return {line_of(call, 2, call.outputs.at(0).shape, true)};
  if (op == "aten.slice_scatter" && all_known(2)) return {line_of(call, 2, call.outputs.at(0).shape, true)};
  if (op == "aten.constant_pad_nd" && is_zero(argument(call, 2))) return padded(call);
  return {};
}

bool may_share_rows(const Call& call, size_t dim) {
  const int64_t from = call.inputs.at(0).shape.at(dim), to = call.outputs.at(0).shape.at(dim);
  const std::vector<TakenRows> taken = taken_rows(call);
  return std::min(from, to) >= kLeastRows &&
         std::any_of(taken.begin(), taken.end(), [dim](const TakenRows& rows) { return rows.dim == dim; });
}

OpRule taking_rows(const Call& call, const std::vector<bool>& acted) {
  Letters letters{{""}, {""}};
  for (size_t d = 0; d < acted.size(); ++d) {
    const auto letter = static_cast<char>('a' + static_cast<char>(d)), other = static_cast<char>(letter - 'a' + 'A');
    const std::string mark = !acted[d] ? "" : may_share_rows(call, d) ? "~" : "!";
    letters.inputs[0] += letter + mark;
    letters.outputs[0] += (mark == "!" ? other : letter) + mark;
  }
  return from_letters(call, letters);
}

namespace {

std::vector<bool> padded_dims(const Call& call, size_t arg, size_t rank) {
  std::vector<bool> acted(rank, false);
  const std::vector<int64_t> widths = integers(call, arg);
  for (size_t i = 0; i < widths.size(); ++i)
    if (widths[i] != 0) acted.at(rank - 1 - i / 2) = true;
  return acted;
}

}  // namespace

// Padding with zeros is linear; with any other number it is not.
OpRule pad(const Call& call) {
  OpRule rule = taking_rows(call, padded_dims(call, 1, rank_of(call)));
  if (is_zero(argument(call, 2))) rule.linearity = Linearity::joint;
  return rule;
}

Values expand_taken_rows(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  ValueId value = maths.input(0);
  std::vector<int64_t> widths =
      base_name(maths.call().op) == "aten.constant_pad_nd" ? integers(maths.call(), 1) : std::vector<int64_t>{};
  bool taken = false;
  for (const TakenRows& rows : taken_rows(maths.call())) {
    if (!maths.is_cut(maths.input(0), rows.dim)) continue;
    TensorType type{maths.dtype(value), maths.shape(value)};
    const int64_t of = type.shape[rows.dim], to = maths.output(0).shape.at(rows.dim);
    type.shape[rows.dim] = to;
    const size_t at = 2 * (type.shape.size() - 1 - rows.dim);
    if (!widths.empty()) widths[at] = widths[at + 1] = 0;
    const int64_t parts = maths.parts(maths.input(0), rows.dim);
    value = maths.emit(std::string(kTakeRows),
                       {TensorArg{0}, static_cast<int64_t>(rows.dim), rows.sources(to, of), parts}, {value}, {type});
    taken = true;
  }
  if (!taken) return unchanged(maths, node);
  if (std::any_of(widths.begin(), widths.end(), [](int64_t width) { return width != 0; }))
    value = maths.emit(maths.call().op, {TensorArg{0}, widths, maths.call().args.at(2)}, {value}, {maths.output(0)});
  return {value};
}

// spmdx.take_rows(x, dim, sources, parts)
OpRule take_rows(const Call& call) {
  return parts_of_dim(call, static_cast<size_t>(integer(call, 1, 0)), integer(call, 3, 1));
}

// Keeps the sources of the local rows of the result, counted from the first local row of the operand.
void rows_here(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args) {
  const auto dim = static_cast<size_t>(integer(call, 1, 0));
  const std::vector<int64_t> sources = integers(call, 2);
  const Range own = inputs.at(0).at(dim), mine = outputs.at(0).at(dim);
  std::vector<int64_t> here(sources.begin() + mine.start, sources.begin() + mine.start + mine.extent);
  for (int64_t& source : here) source = source < 0 ? source : source - own.start;
  args.at(2) = std::move(here);
}

}  // namespace spmdx::rules
