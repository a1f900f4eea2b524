// SPDX-License-Identifier: Apache-2.0
// Joins: where all operands are cut alike, each device joins its own blocks, and then blocks are exchanged.
#include <numeric>

#include "graph/args.h"
#include "rules/build/acted_dims.h"
#include "rules/build/blocks.h"
#include "rules/build/letters.h"
#include "rules/build/op_builder.h"
#include "rules/rule/rule.h"
#include "rules/tensors/pointwise.h"

namespace spmdx::rules {
namespace {

// The size that all operands have in the joined dim, or −1 where they differ. Equal sizes may be cut alike.
int64_t joined_extent(const Call& call, size_t dim) {
  const size_t rank = call.outputs[0].shape.size();
  const Shape& first = call.inputs[0].shape;
  for (const TensorType& type : call.inputs)
    if (type.shape.size() != rank || type.shape[dim] != first.at(dim)) return -1;
  return first[dim];
}

}  // namespace

// PyTorch ignores an empty 1-D operand, whatever the rank of the others: its dim gets no factor.
OpRule cat(const Call& call) {
  OpRule rule = replicated(call);
  const Shape& out = call.outputs[0].shape;
  const size_t dim = dim_of(call, 1, out.size());
  rule.factors.clear();
  std::vector<int> shared(out.size(), -1);
  auto fresh = [&rule](int64_t size, FactorKind kind) {
    rule.factors.push_back({size, kind, Reduction::none});
    return static_cast<int>(rule.factors.size()) - 1;
  };
  for (size_t d = 0; d < out.size(); ++d)
    if (out[d] != 1) shared[d] = fresh(out[d], d == dim ? FactorKind::replicate : FactorKind::pass);
  const int64_t extent = out.empty() ? -1 : joined_extent(call, dim);
  const int joined = extent > 1 ? fresh(extent, FactorKind::composite) : -1;
  auto assign = [&](const Shape& shape, TensorFactors& factors, bool output) {
    factors.assign(shape.size(), {});
    if (shape.size() != out.size()) return;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1) continue;
      if (d != dim || output)
        factors[d] = {shared[d]};
      else
        factors[d] = {joined >= 0 ? joined : fresh(shape[d], FactorKind::replicate)};
    }
  };
  for (size_t i = 0; i < call.inputs.size(); ++i) assign(call.inputs[i].shape, rule.inputs[i], false);
  assign(out, rule.outputs[0], true);
  return rule;
}

OpRule stack(const Call& call) {
  const size_t rank = call.outputs[0].shape.size();
  const auto [big, small] = with_and_without(dim_of(call, 1, rank), rank);
  return from_letters(call, {std::vector<std::string>(call.inputs.size(), small), {big}});
}

// cat(tensors, dim) of n operands of one size: views each as [blocks, rows], joins block i of all operands on the
// device that holds it, and permutes the result [blocks, n, rows] to [n, blocks, rows]. Only that permute moves data.
Values expand_cat(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
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

}  // namespace spmdx::rules
