// SPDX-License-Identifier: Apache-2.0
// Ranges: a read ends in a sum to which the owners of the rows give them, and all others zeros; a write moves nothing.
#include "rules/rows/ranges.h"

#include "graph/args.h"
#include "rules/build/acted_dims.h"
#include "rules/build/letters.h"
#include "rules/build/op_builder.h"
#include "rules/rows/taken_rows.h"

namespace spmdx::rules {
namespace {

// The letters of a tensor with the dim marked as a composite of its own, and of one that lacks the dim.
std::pair<std::string, std::string> owned_dim(size_t dim, size_t rank) {
  std::string without = dims(rank);
  without.erase(dim, 1);
  return {marked(only(dim, rank), '+'), without};
}

Shape with_dim(Shape shape, size_t dim) {
  shape.insert(shape.begin() + static_cast<long>(dim), 1);
  return shape;
}

// The one row of a select, of which argument `arg` is the dim.
TakenRows row_of_select(const Call& call, size_t arg, const Shape& shape) {
  const size_t dim = dim_of(call, arg, shape.size());
  const int64_t index = integer(call, arg + 1, 0);
  return {dim, index < 0 ? index + shape.at(dim) : index};
}

// slice and slice_backward, of which argument `arg` is the dim.
OpRule sliced(const Call& call, size_t arg) {
  const size_t rank = rank_of(call), dim = dim_of(call, arg, rank);
  const std::vector<bool> acted = only(dim, rank);
  if (taken_rows(call).empty() || may_share_rows(call, dim)) return taking_rows(call, acted);
  std::string from = dims(rank), to = from;
  from.replace(dim, 1, "Y+");
  to.replace(dim, 1, "Z+");
  return from_letters(call, {{from}, {to}});
}

ValueId emit_range(OpBuilder& maths, std::string_view op, ValueId x, const TakenRows& rows, TensorType type) {
  return maths.emit(std::string(op), {TensorArg{0}, static_cast<int64_t>(rows.dim), rows.first, rows.step}, {x},
                    {std::move(type)});
}

ValueId emit_write(OpBuilder& maths, ValueId base, ValueId x, const TakenRows& rows) {
  using List = std::vector<int64_t>;
  return maths.emit(
      std::string(kWriteRange),
      {TensorArg{0}, TensorArg{1}, List{static_cast<int64_t>(rows.dim)}, List{rows.first}, List{rows.step}}, {base, x},
      {maths.output(0)});
}

}  // namespace

OpRule slice(const Call& call) {
  if (call.inputs[0].shape == call.outputs[0].shape) return whole_dims(call, std::vector<bool>(rank_of(call), false));
  return sliced(call, 1);
}

OpRule slice_backward(const Call& call) { return sliced(call, 2); }

OpRule select(const Call& call) {
  const size_t rank = rank_of(call);
  const auto [big, small] = owned_dim(dim_of(call, 1, rank), rank);
  return from_letters(call, {{big}, {small}});
}

OpRule select_backward(const Call& call) {
  const size_t rank = call.outputs[0].shape.size();
  const auto [big, small] = owned_dim(dim_of(call, 2, rank), rank);
  return from_letters(call, {{small}, {big}});
}

OpRule slice_scatter(const Call& call) {
  const size_t rank = rank_of(call), dim = dim_of(call, 2, rank);
  if (taken_rows(call).empty()) return resize_dims(call, only(dim, rank));
  const std::string big = owned_dim(dim, rank).first;
  return from_letters(call, {{big, resized(only(dim, rank), 'B')}, {big}});
}

OpRule select_scatter(const Call& call) {
  const size_t rank = rank_of(call);
  const auto [big, small] = owned_dim(dim_of(call, 2, rank), rank);
  return from_letters(call, {{big, small}, {big}});
}

Values expand_slice(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const TakenRows rows = taken_rows(maths.call()).at(0);
  if (may_share_rows(maths.call(), rows.dim)) return expand_taken_rows(builder, node);
  return {emit_range(maths, rows.back ? kPlaceRange : kReadRange, maths.input(0), rows, maths.output(0))};
}

Values expand_select(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const TakenRows row = row_of_select(maths.call(), 1, maths.shape(maths.input(0)));
  const TensorType& result = maths.output(0);
  const TensorType one{result.dtype, with_dim(result.shape, row.dim)};
  return {maths.view(emit_range(maths, kReadRange, maths.input(0), row, one), result.shape)};
}

Values expand_select_backward(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const TakenRows row = row_of_select(maths.call(), 2, maths.output(0).shape);
  const ValueId grad = maths.view(maths.input(0), with_dim(maths.shape(maths.input(0)), row.dim));
  return {emit_range(maths, kPlaceRange, grad, row, maths.output(0))};
}

Values expand_select_scatter(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const TakenRows row = row_of_select(maths.call(), 2, maths.output(0).shape);
  const ValueId source = maths.view(maths.input(1), with_dim(maths.shape(maths.input(1)), row.dim));
  return {emit_write(maths, maths.input(0), source, row)};
}

Values expand_slice_scatter(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  return {emit_write(maths, maths.input(0), maths.input(1), taken_rows(maths.call()).at(0))};
}

OpRule range(const Call& call) {
  const size_t rank = rank_of(call), dim = dim_of(call, 1, rank);
  std::string from = dims(rank), to = from;
  from[dim] = 'Y';
  to[dim] = 'Z';
  return from_letters(call, {{from}, {to}});
}

OpRule write_range(const Call& call) {
  const size_t rank = rank_of(call);
  std::vector<bool> ranged(rank, false);
  for (const int64_t dim : list_of_integers(call, 2)) ranged.at(static_cast<size_t>(dim)) = true;
  return from_letters(call, {{dims(rank), resized(ranged, 'B')}, {dims(rank)}});
}

namespace {

// A number, or a parameter of the plan, and `by`.
Arg shifted(const Arg& number, int64_t by) {
  if (const auto* param = std::get_if<IntParam>(&number)) return IntParam{param->index, param->plus + by};
  return std::get<int64_t>(number) + by;
}

}  // namespace

void read_range_first(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args) {
  const auto dim = static_cast<size_t>(integer(call, 1, 0));
  args.at(2) = shifted(call.args.at(2), outputs.at(0).at(dim).start * integer(call, 3, 1) - inputs.at(0).at(dim).start);
}

void place_range_first(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args) {
  const auto dim = static_cast<size_t>(integer(call, 1, 0));
  args.at(2) = shifted(call.args.at(2), inputs.at(0).at(dim).start * integer(call, 3, 1) - outputs.at(0).at(dim).start);
}

// Parameters of the plan, which are added to the firsts, stay as they are.
void write_range_first(const Call& call, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  const std::vector<int64_t>& dims = list_of_integers(call, 2);
  std::vector<int64_t> firsts = list_of_integers(call, 3);
  for (size_t i = 0; i < dims.size(); ++i) firsts[i] -= inputs.at(0).at(static_cast<size_t>(dims[i])).start;
  args.at(3) = std::move(firsts);
}

}  // namespace spmdx::rules
