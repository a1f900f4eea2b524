// SPDX-License-Identifier: Apache-2.0
// Scans: a cut dim is viewed as blocks; each block is computed where it is, and only a total or k candidates of it
// move.
#include "rules/tensors/scans.h"

#include <limits>

#include "base/error.h"
#include "graph/args.h"
#include "rules/build/acted_dims.h"
#include "rules/build/blocks.h"
#include "rules/build/letters.h"
#include "rules/rule/row.h"
#include "rules/tensors/pointwise.h"

namespace spmdx::rules {
namespace {

// A scan op, the op that adds the total of earlier blocks to a block, and the identity of that op.
struct Scan {
  const char* op;
  const char* combine;
  double nothing;
};

constexpr Scan kScans[] = {{"aten.cumprod", "aten.mul.Tensor", 1},
                           {"aten.cumsum", "aten.add.Tensor", 0},
                           {"aten.logcumsumexp", "aten.logaddexp", -std::numeric_limits<double>::infinity()}};

const Scan& scan_of(const Call& call) {
  for (const Scan& scan : kScans)
    if (base_name(call.op) == scan.op) return scan;
  throw InternalError("no scan: " + call.op);
}

ValueId scanned(OpBuilder& maths, const Scan& by, ValueId value, size_t dim, DType dtype) {
  std::vector<Arg> args = {TensorArg{0}, static_cast<int64_t>(dim)};
  if (std::string_view(by.op) != "aten.logcumsumexp") args.emplace_back(dtype);
  return maths.emit(by.op, std::move(args), {value}, {{dtype, maths.shape(value)}});
}

// For each block the scan over all blocks before it: the last row of each block is its total; totals are shifted by one
// block and scanned.
ValueId before_blocks(OpBuilder& maths, const Scan& by, ValueId local, const Blocks& blocks) {
  const DType dtype = maths.dtype(local);
  const ValueId totals = rows_between(maths, local, blocks.dim + 1, blocks.size - 1, blocks.size);
  const Shape shape = maths.shape(totals);
  std::vector<int64_t> widths(2 * (shape.size() - blocks.dim), 0);
  widths[widths.size() - 2] = 1;
  widths[widths.size() - 1] = -1;
  const Arg nothing = is_floating(dtype) ? Arg(by.nothing) : Arg(static_cast<int64_t>(by.nothing));
  const ValueId later =
      maths.emit("aten.constant_pad_nd", {TensorArg{0}, std::move(widths), nothing}, {totals}, {{dtype, shape}});
  return scanned(maths, by, later, blocks.dim, dtype);
}

}  // namespace

OpRule scan_blocks(const Call& call) {
  const size_t rank = rank_of(call);
  std::string text = dims(rank);
  if (rank > 0) text.insert(dim_of(call, 1, rank, -1) + 1, "^");
  return from_letters(call, {{text}, {text}});
}

// topk(x, k, dim, largest, sorted) -> (values, indices): of the dim, only that of x may be cut.
OpRule topk(const Call& call) {
  const size_t rank = rank_of(call);
  if (rank == 0) return replicated(call);
  const size_t dim = dim_of(call, 2, rank, -1);
  std::string in = dims(rank), out = in;
  in.replace(dim, 1, "A^");
  out.replace(dim, 1, "N!");
  return from_letters(call, {{in}, {out, out}});
}

// cumsum(x, dim, dtype)
Values expand_scan(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const TensorType out = maths.output(0);
  const auto dim = static_cast<size_t>(normal_dim(integer(maths.call(), 1, -1), out.shape.size()));
  const Blocks blocks = blocks_of(maths, maths.input(0), dim);
  if (blocks.count == 1) return unchanged(maths, node);
  const Scan& by = scan_of(maths.call());
  const ValueId x = maths.view(maths.input(0), blocked(out.shape, blocks));
  const ValueId local = scanned(maths, by, x, dim + 1, out.dtype);
  const ValueId all = maths.binary(by.combine, before_blocks(maths, by, local, blocks), local);
  return {maths.view(all, out.shape)};
}

// topk(x, k, dim, largest, sorted): k candidates of each block, then the best k of all candidates.
Values expand_topk(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
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

}  // namespace spmdx::rules
