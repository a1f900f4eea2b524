// SPDX-License-Identifier: Apache-2.0
// Extrema: the extremum over all devices, then the lowest position of an element that equals it.
#include "graph/args.h"
#include "rules/build/op_builder.h"
#include "rules/rule/rule.h"
#include "rules/tensors/reductions.h"

namespace spmdx::rules {
namespace {

std::vector<int64_t> acted(const Call& call, size_t rank) {
  const std::vector<bool> marks = acted_dims(call, 1, rank);
  std::vector<int64_t> dims;
  for (size_t d = 0; d < rank; ++d)
    if (marks[d]) dims.push_back(static_cast<int64_t>(d));
  return dims;
}

// For each element its row-major position within `dims`: the sum over `dims` of index · stride, by broadcasting.
ValueId positions(OpBuilder& maths, const Shape& shape, const std::vector<int64_t>& dims) {
  ValueId total = kNone;
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    const auto d = static_cast<size_t>(dims[i]);
    Shape line(shape.size(), 1);
    line[d] = shape[d];
    ValueId place = maths.view(maths.iota(shape[d], DType::i64), line);
    if (stride != 1) place = maths.mul(place, Scalar{stride});
    total = total == kNone ? place : maths.add(total, place);
    stride *= shape[d];
  }
  return total;
}

// Where x is the extremum. A NaN counts as the extremum, as in PyTorch.
ValueId attains(OpBuilder& maths, ValueId x, ValueId extremum) {
  const ValueId equal = maths.equal(x, extremum);
  if (!is_floating(maths.dtype(x))) return equal;
  const ValueId nan = maths.emit("aten.isnan", {TensorArg{0}}, {x}, {{DType::b8, maths.shape(x)}});
  return maths.emit("aten.logical_or", {TensorArg{0}, TensorArg{1}}, {equal, nan}, {{DType::b8, maths.shape(x)}});
}

}  // namespace

OpRule reduce_index(const Call& call) { return reduce(call, 1, Reduction::none, '^'); }

// Results of argmax and argmin: (indices); of max.dim and min.dim: (values, indices).
Values expand_extremum(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const std::string_view base = base_name(maths.call().op);
  const bool largest = base == "aten.argmax" || base == "aten.max";
  const ValueId x = maths.input(0);
  const Shape shape = maths.shape(x);
  const std::vector<int64_t> dims = acted(maths.call(), shape.size());
  const ValueId top = maths.extremum(largest ? "aten.amax" : "aten.amin", x, dims, true);
  const ValueId here = maths.where_or(attains(maths, x, top), positions(maths, shape, dims), numel(shape));
  const size_t count = maths.call().outputs.size();
  const ValueId index = maths.view(maths.extremum("aten.amin", here, dims, true), maths.output(count - 1).shape);
  if (count == 1) return {index};
  return {maths.view(top, maths.output(0).shape), index};
}

}  // namespace spmdx::rules
