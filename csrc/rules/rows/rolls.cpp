// SPDX-License-Identifier: Apache-2.0
// Rolls: each block gets the end of one block and the beginning of the next; both pieces move as permutes of blocks.
#include <algorithm>

#include "graph/args.h"
#include "rules/build/acted_dims.h"
#include "rules/build/blocks.h"
#include "rules/build/letters.h"
#include "rules/rule/rule.h"

namespace spmdx::rules {
namespace {

// Moves every block `by` blocks further; blocks moved past the end come in at the beginning.
ValueId turned(OpBuilder& maths, ValueId value, const Blocks& blocks, int64_t by) {
  std::vector<int64_t> sources;
  for (int64_t block = 0; block < blocks.count; ++block) sources.push_back((block - by + blocks.count) % blocks.count);
  if (std::is_sorted(sources.begin(), sources.end())) return value;
  const TensorType type{maths.dtype(value), maths.shape(value)};
  return maths.emit("spmdx.permute_rows", {TensorArg{0}, static_cast<int64_t>(blocks.dim), std::move(sources)}, {value},
                    {type});
}

// Rolls a dim by `shift`, which is from 0 to the size of the dim − 1.
ValueId rolled_blocks(OpBuilder& maths, ValueId value, const Blocks& blocks, int64_t shift) {
  const TensorType out{maths.dtype(value), maths.shape(value)};
  const ValueId own = maths.view(value, blocked(out.shape, blocks));
  const int64_t by = shift / blocks.size, rest = shift % blocks.size, kept = blocks.size - rest;
  const size_t inner = blocks.dim + 1;
  if (rest == 0) return maths.view(turned(maths, own, blocks, by), out.shape);
  const ValueId end = turned(maths, rows_between(maths, own, inner, kept, blocks.size), blocks, by + 1);
  const ValueId begin = turned(maths, rows_between(maths, own, inner, 0, kept), blocks, by);
  const ValueId joined = maths.emit("aten.cat", {TensorListArg{{0, 1}}, static_cast<int64_t>(inner)}, {end, begin},
                                    {{out.dtype, blocked(out.shape, blocks)}});
  return maths.view(joined, out.shape);
}

}  // namespace

// Without dims, torch.roll rolls the flattened tensor: then no dim may be cut.
OpRule rolled(const Call& call) {
  const size_t rank = rank_of(call);
  if (integers(call, 2).empty()) return whole_dims(call, std::vector<bool>(rank, true));
  const std::string text = marked(acted_dims(call, 2, rank), '^');
  return from_letters(call, {{text}, {text}});
}

// roll(x, shifts, dims): rolls all other dims by the op itself, then the first dim that is cut by blocks.
Values expand_roll(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const Shape& shape = maths.output(0).shape;
  std::vector<int64_t> shifts = integers(maths.call(), 1), dims = integers(maths.call(), 2);
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto dim = static_cast<size_t>(normal_dim(dims[i], shape.size()));
    const Blocks blocks = blocks_of(maths, maths.input(0), dim);
    if (blocks.count == 1 || !maths.is_cut(maths.input(0), dim)) continue;
    const int64_t shift = (shifts.at(i) % shape[dim] + shape[dim]) % shape[dim];
    shifts.erase(shifts.begin() + static_cast<long>(i));
    dims.erase(dims.begin() + static_cast<long>(i));
    ValueId value = maths.input(0);
    if (!dims.empty()) value = maths.emit(maths.call().op, {TensorArg{0}, shifts, dims}, {value}, {maths.output(0)});
    return {rolled_blocks(maths, value, blocks, shift)};
  }
  return unchanged(maths, node);
}

}  // namespace spmdx::rules
