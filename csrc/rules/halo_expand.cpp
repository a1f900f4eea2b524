// SPDX-License-Identifier: Apache-2.0
// Convolutions over a cut spatial dim: each block takes a halo of its neighbours and is one more entry of the batch.
#include <algorithm>
#include <numeric>

#include "rules/blocks.h"
#include "rules/families.h"
#include "rules/halo.h"

namespace spmdx {
namespace {

int64_t entry(const Call& call, size_t arg, size_t spatial, int64_t missing) {
  const auto* list = std::get_if<std::vector<int64_t>>(&argument(call, arg));
  if (!list || list->empty()) return missing;
  return list->at(list->size() == 1 ? 0 : spatial);
}

// Values of one convolution, with a spatial dim seen as blocks.
class Halo {
 public:
  Halo(Maths& maths, const Blocks& blocks, Reach reach) : maths_(maths), blocks_(blocks), reach_(reach) {}

  // [N, …, rows, …] → [blocks · N, …, rows of a block, …]
  ValueId batched(ValueId value) { return to_batch(split(value)); }
  // The same with the rows that the neighbours have.
  ValueId with_halo(ValueId value) {
    const ValueId own = split(value);
    std::vector<ValueId> parts;
    if (reach_.before) parts.push_back(shift(rows(own, blocks_.size - reach_.before, blocks_.size), 1));
    parts.push_back(own);
    if (reach_.after) parts.push_back(shift(rows(own, 0, reach_.after), -1));
    return to_batch(parts.size() == 1 ? own : joined(parts));
  }
  // The way back of `batched`.
  ValueId spread(ValueId value) { return merged(from_batch(value)); }
  // The way back of `with_halo`, for gradients: what was lent is added where it came from.
  ValueId without_halo(ValueId value) {
    const ValueId all = from_batch(value);
    ValueId own = rows(all, reach_.before, reach_.before + blocks_.size);
    if (reach_.before)
      own = maths_.add(own, padded(shift(rows(all, 0, reach_.before), -1), blocks_.size - reach_.before, 0));
    if (reach_.after) {
      const int64_t end = maths_.shape(all)[inner()];
      own = maths_.add(own, padded(shift(rows(all, end - reach_.after, end), 1), 0, blocks_.size - reach_.after));
    }
    return merged(own);
  }

 private:
  size_t inner() const { return blocks_.dim + 1; }

  ValueId emit(const char* op, std::vector<Arg> args, ValueId value, Shape shape) {
    args.insert(args.begin(), TensorArg{0});
    const DType dtype = maths_.dtype(value);
    return maths_.emit(op, std::move(args), {value}, {{dtype, std::move(shape)}});
  }

  ValueId split(ValueId value) {
    const int64_t rows = maths_.shape(value)[blocks_.dim];
    return maths_.view(value, blocked(maths_.shape(value), {blocks_.dim, blocks_.count, rows / blocks_.count}));
  }

  ValueId merged(ValueId value) {
    Shape shape = maths_.shape(value);
    shape[blocks_.dim] *= shape[inner()];
    shape.erase(shape.begin() + static_cast<long>(inner()));
    return maths_.view(value, shape);
  }

  ValueId rows(ValueId value, int64_t start, int64_t stop) {
    Shape shape = maths_.shape(value);
    shape[inner()] = stop - start;
    return emit("aten.slice.Tensor", {static_cast<int64_t>(inner()), start, stop, int64_t{1}}, value, shape);
  }

  // Every block in the place of the one after it (by 1) or before it (by −1); zeros where there is none.
  ValueId shift(ValueId value, int64_t by) {
    std::vector<int64_t> sources(static_cast<size_t>(blocks_.count));
    std::iota(sources.begin(), sources.end(), -by);
    if (by < 0) sources.back() = -1;
    return emit("spmdx.permute_rows", {static_cast<int64_t>(blocks_.dim), sources}, value, maths_.shape(value));
  }

  ValueId padded(ValueId value, int64_t before, int64_t after) {
    Shape shape = maths_.shape(value);
    std::vector<int64_t> widths(2 * (shape.size() - inner()), 0);
    widths[widths.size() - 2] = before;
    widths[widths.size() - 1] = after;
    shape[inner()] += before + after;
    return emit("aten.constant_pad_nd", {std::move(widths), 0.0}, value, shape);
  }

  ValueId joined(const std::vector<ValueId>& parts) {
    Shape shape = maths_.shape(parts[0]);
    shape[inner()] = 0;
    TensorListArg list;
    for (uint32_t i = 0; i < parts.size(); ++i) {
      list.inputs.push_back(i);
      shape[inner()] += maths_.shape(parts[i])[inner()];
    }
    return maths_.emit("aten.cat", {list, static_cast<int64_t>(inner())}, parts, {{maths_.dtype(parts[0]), shape}});
  }

  // Blocks first, so that they are the major part of the batch.
  ValueId to_batch(ValueId value) {
    const size_t rank = maths_.shape(value).size();
    std::vector<int64_t> order(rank);
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + static_cast<long>(blocks_.dim),
                order.begin() + static_cast<long>(blocks_.dim) + 1);
    Shape shape = permuted(maths_.shape(value), order);
    const ValueId turned = emit("aten.permute", {order}, value, shape);
    shape[1] *= shape[0];
    shape.erase(shape.begin());
    return maths_.view(turned, shape);
  }

  ValueId from_batch(ValueId value) {
    Shape shape = maths_.shape(value);
    shape[0] /= blocks_.count;
    shape.insert(shape.begin(), blocks_.count);
    const ValueId apart = maths_.view(value, shape);
    std::vector<int64_t> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + 1, order.begin() + static_cast<long>(blocks_.dim) + 1);
    shape = permuted(shape, order);
    return emit("aten.permute", {order}, apart, shape);
  }

  static Shape permuted(const Shape& shape, const std::vector<int64_t>& order) {
    Shape result;
    for (int64_t d : order) result.push_back(shape.at(static_cast<size_t>(d)));
    return result;
  }

  Maths& maths_;
  const Blocks blocks_;
  const Reach reach_;
};

struct Found {
  size_t spatial;
  Blocks blocks;
  Reach reach;
};

// The first spatial dim of x that is cut, or of the result's gradient, if its parts can be blocks.
std::optional<Found> cut_dim(Maths& maths, size_t first, ValueId x, ValueId also, const Shape& weight,
                             const Shape& result) {
  const Shape& shape = maths.shape(x);
  for (size_t spatial = 0; spatial + 2 < shape.size(); ++spatial) {
    const size_t dim = spatial + 2;
    const auto reach = reach_of(maths.call(), first, shape, weight, result, spatial);
    if (!reach || reach->local() || !(maths.is_cut(x, dim) || maths.is_cut(also, dim))) continue;
    const Blocks blocks = blocks_of(maths, maths.is_cut(x, dim) ? x : also, dim);
    if (blocks.count > 1 && blocks.size >= std::max(reach->before, reach->after)) return Found{spatial, blocks, *reach};
  }
  return std::nullopt;
}

// The node's arguments without padding in that dim: the halo is in its place.
std::vector<Arg> without_padding(const Call& call, size_t padding, size_t spatial, size_t count) {
  std::vector<Arg> args = call.args;
  std::vector<int64_t> widths;
  for (size_t i = 0; i < count; ++i) widths.push_back(i == spatial ? 0 : entry(call, padding, i, 0));
  args.at(padding) = widths;
  return args;
}

Shape batch_of(Shape shape, const Blocks& blocks, int64_t rows) {
  shape.at(0) *= blocks.count;
  shape.at(blocks.dim) = rows;
  return shape;
}

}  // namespace

std::optional<Reach> reach_of(const Call& call, size_t first, const Shape& x, const Shape& weight, const Shape& result,
                              size_t spatial) {
  if (boolean(call, first + 3, false) || entry(call, first, spatial, 1) != 1) return std::nullopt;
  if (x.at(spatial + 2) != result.at(spatial + 2)) return std::nullopt;
  const int64_t window = (weight.at(spatial + 2) - 1) * entry(call, first + 2, spatial, 1);
  const int64_t before = entry(call, first + 1, spatial, 0);
  return Reach{before, window - before};
}

// (x, w, bias, stride, padding, dilation, transposed, output_padding, groups)
Values expand_convolution(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const ValueId x = maths.input(0);
  const Shape weight = maths.shape(maths.input(1)), out = maths.output(0).shape;
  const auto found = cut_dim(maths, 3, x, x, weight, out);
  if (!found) return operand(maths.call(), 2) >= 0 ? add_bias_after(maths) : unchanged(maths, node);
  Halo halo(maths, found->blocks, found->reach);
  std::vector<ValueId> inputs = node.inputs;
  inputs[0] = halo.with_halo(x);
  const Shape shape = batch_of(out, found->blocks, found->blocks.size);
  return {halo.spread(maths.emit(maths.call().op, without_padding(maths.call(), 4, found->spatial, out.size() - 2),
                                 std::move(inputs), {{maths.output(0).dtype, shape}}))};
}

// The gradients of input and weight, and that of the bias by itself.
Values bias_gradient_apart(Maths& maths, const Node& node) {
  std::vector<Arg> args = maths.call().args;
  std::vector<TensorType> types = maths.call().outputs;
  args.at(10) = std::vector<bool>{produced(types[0]), produced(types[1]), false};
  types[2].dtype = DType::unknown;
  const ValueId grad = maths.input(0), made = maths.emit(maths.call().op, std::move(args), node.inputs, types);
  std::vector<int64_t> dims(maths.shape(grad).size());
  std::iota(dims.begin(), dims.end(), 0);
  dims.erase(dims.begin() + 1);
  return {made, made + 1, maths.sum(grad, dims, false, maths.output(2).dtype)};
}

// (grad, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask) → dx, dw, db
Values expand_convolution_backward(Builder& builder, const Node& node) {
  Maths maths(builder, node);
  const ValueId grad = maths.input(0), x = maths.input(1);
  const Shape weight = maths.shape(maths.input(2)), whole = maths.shape(x);
  const auto found = cut_dim(maths, 4, x, grad, weight, maths.shape(grad));
  if (!found) return produced(maths.output(2)) ? bias_gradient_apart(maths, node) : unchanged(maths, node);
  Halo halo(maths, found->blocks, found->reach);
  std::vector<TensorType> types = maths.call().outputs;
  const bool wanted = produced(types[0]);
  if (wanted)
    types[0].shape = batch_of(whole, found->blocks, found->blocks.size + found->reach.before + found->reach.after);
  const ValueId made = maths.emit(maths.call().op, without_padding(maths.call(), 5, found->spatial, whole.size() - 2),
                                  {halo.batched(grad), halo.with_halo(x), maths.input(2)}, types);
  return {wanted ? halo.without_halo(made) : made, made + 1, made + 2};
}

}  // namespace spmdx
