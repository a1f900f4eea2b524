// SPDX-License-Identifier: Apache-2.0
// Expansions that see a cut dim as blocks, one a part: each does its own, and the little that is left of a block moves.
#include <limits>
#include <numeric>

#include "rules/build/blocks.h"
#include "rules/families.h"

namespace spmdx {

Blocks blocks_of(Maths& maths, ValueId value, size_t dim) {
  const Shape& shape = maths.shape(value);
  const int64_t parts = maths.parts(value, dim);
  const bool even = parts > 1 && shape.at(dim) % parts == 0;
  return even ? Blocks{dim, parts, shape[dim] / parts} : Blocks{dim, 1, shape[dim]};
}

Shape blocked(Shape shape, const Blocks& blocks) {
  shape.at(blocks.dim) = blocks.count;
  shape.insert(shape.begin() + static_cast<long>(blocks.dim) + 1, blocks.size);
  return shape;
}

ValueId rows_between(Maths& maths, ValueId value, size_t dim, int64_t start, int64_t stop) {
  const DType dtype = maths.dtype(value);
  Shape shape = maths.shape(value);
  shape.at(dim) = stop - start;
  return maths.emit("aten.slice.Tensor", {TensorArg{0}, static_cast<int64_t>(dim), start, stop, int64_t{1}}, {value},
                    {{dtype, std::move(shape)}});
}

Values unchanged(Maths& maths, const Node& node) {
  const Call& call = maths.call();
  const ValueId first =
      maths.emit(call.op, call.args, node.inputs, call.outputs, Scalar{{}, call.num_params, node.param});
  Values results;
  for (size_t i = 0; i < call.outputs.size(); ++i) results.push_back(first + static_cast<ValueId>(i));
  return results;
}

namespace {

// How a scan goes on from one block to the next.
struct Scan {
  const char* op;
  const char* combine;
  double nothing;
};

constexpr Scan kScans[] = {{"aten.cumsum", "aten.add.Tensor", 0},
                           {"aten.cumprod", "aten.mul.Tensor", 1},
                           {"aten.logcumsumexp", "aten.logaddexp", -std::numeric_limits<double>::infinity()}};

const Scan& scan_of(const Call& call) {
  for (const Scan& scan : kScans)
    if (base_name(call.op) == scan.op) return scan;
  return kScans[0];
}

ValueId scan(Maths& maths, const Scan& by, ValueId value, size_t dim, DType dtype) {
  std::vector<Arg> args = {TensorArg{0}, static_cast<int64_t>(dim)};
  if (std::string_view(by.op) != "aten.logcumsumexp") args.emplace_back(dtype);
  return maths.emit(by.op, std::move(args), {value}, {{dtype, maths.shape(value)}});
}

// What comes before each block: the totals of all blocks, one place later.
ValueId before_blocks(Maths& maths, const Scan& by, ValueId local, const Blocks& blocks) {
  const DType dtype = maths.dtype(local);
  const ValueId totals = rows_between(maths, local, blocks.dim + 1, blocks.size - 1, blocks.size);
  const Shape shape = maths.shape(totals);
  std::vector<int64_t> widths(2 * (shape.size() - blocks.dim), 0);
  widths[widths.size() - 2] = 1;
  widths[widths.size() - 1] = -1;
  const Arg nothing = is_floating(dtype) ? Arg(by.nothing) : Arg(static_cast<int64_t>(by.nothing));
  const ValueId later =
      maths.emit("aten.constant_pad_nd", {TensorArg{0}, std::move(widths), nothing}, {totals}, {{dtype, shape}});
  return scan(maths, by, later, blocks.dim, dtype);
}

}  // namespace

// (x, dim, dtype)
Values expand_scan(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const TensorType out = maths.output(0);
  const auto dim = static_cast<size_t>(normal_dim(integer(maths.call(), 1, -1), out.shape.size()));
  const Blocks blocks = blocks_of(maths, maths.input(0), dim);
  if (blocks.count == 1) return unchanged(maths, node);
  const Scan& by = scan_of(maths.call());
  const ValueId x = maths.view(maths.input(0), blocked(out.shape, blocks));
  const ValueId local = scan(maths, by, x, dim + 1, out.dtype);
  const ValueId all = maths.binary(by.combine, before_blocks(maths, by, local, blocks), local);
  return {maths.view(all, out.shape)};
}

// (x, k, dim, largest, sorted): the candidates of each block, then the best of those.
Values expand_topk(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const TensorType out = maths.output(0);
  const auto dim = static_cast<size_t>(normal_dim(integer(maths.call(), 2, -1), out.shape.size()));
  const int64_t k = integer(maths.call(), 1, 0);
  const Blocks blocks = blocks_of(maths, maths.input(0), dim);
  if (blocks.count == 1 || k >= blocks.size) return unchanged(maths, node);
  const ValueId x = maths.view(maths.input(0), blocked(maths.shape(maths.input(0)), blocks));
  const Shape shape = blocked(out.shape, Blocks{dim, blocks.count, k});
  std::vector<Arg> args = maths.call().args;
  args.at(2) = static_cast<int64_t>(dim) + 1;
  const ValueId each = maths.emit(maths.call().op, args, {x}, {{out.dtype, shape}, {DType::i64, shape}});
  Shape line(shape.size(), 1);
  line[dim] = blocks.count;
  const ValueId starts = maths.view(maths.mul(maths.iota(blocks.count, DType::i64), Scalar{blocks.size}), line);
  Shape merged = out.shape;
  merged.at(dim) = blocks.count * k;
  const ValueId index = maths.view(maths.add(each + 1, starts), merged);
  args.at(2) = static_cast<int64_t>(dim);
  const ValueId best = maths.emit(maths.call().op, args, {maths.view(each, merged)}, {out, {DType::i64, out.shape}});
  const ValueId where = maths.emit("aten.gather", {TensorArg{0}, static_cast<int64_t>(dim), TensorArg{1}, false},
                                   {index, best + 1}, {{DType::i64, out.shape}});
  return {best, where};
}

// (tensors, dim), all alike: blocks of each tensor are joined where they lie; then whole tensors come one after the
// other, which moves only what changes hands.
Values expand_cat(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const TensorType out = maths.output(0);
  const auto dim = static_cast<size_t>(normal_dim(integer(maths.call(), 1, 0), out.shape.size()));
  const Blocks blocks = blocks_of(maths, maths.input(0), dim);
  if (blocks.count == 1) return unchanged(maths, node);
  const auto count = static_cast<int64_t>(node.inputs.size());
  std::vector<ValueId> parts;
  for (ValueId input : node.inputs) parts.push_back(maths.view(input, blocked(maths.shape(input), blocks)));
  std::vector<Arg> args = maths.call().args;
  args.at(1) = static_cast<int64_t>(dim) + 1;
  Shape local = blocked(out.shape, Blocks{dim, blocks.count, count * blocks.size});
  const ValueId joined = maths.emit(maths.call().op, std::move(args), parts, {{out.dtype, local}});
  local[dim + 1] = blocks.size;
  local.insert(local.begin() + static_cast<long>(dim) + 1, count);
  const ValueId apart = maths.view(joined, local);
  std::vector<int64_t> order(local.size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[dim], order[dim + 1]);
  std::swap(local[dim], local[dim + 1]);
  const ValueId ordered = maths.emit("aten.permute", {TensorArg{0}, order}, {apart}, {{out.dtype, local}});
  return {maths.view(ordered, out.shape)};
}

}  // namespace spmdx
