// SPDX-License-Identifier: Apache-2.0
// Blocks: the shape of the view, and the nodes that expansions over blocks need.
#include "rules/build/blocks.h"

namespace spmdx::rules {

Blocks blocks_of(OpBuilder& maths, ValueId value, size_t dim) {
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

ValueId rows_between(OpBuilder& maths, ValueId value, size_t dim, int64_t start, int64_t stop) {
  const DType dtype = maths.dtype(value);
  Shape shape = maths.shape(value);
  shape.at(dim) = stop - start;
  return maths.emit("aten.slice.Tensor", {TensorArg{0}, static_cast<int64_t>(dim), start, stop, int64_t{1}}, {value},
                    {{dtype, std::move(shape)}});
}

Values unchanged(OpBuilder& maths, const Node& node) {
  const Call& call = maths.call();
  const ValueId first =
      maths.emit(call.op, call.args, node.inputs, call.outputs, Scalar{{}, call.num_params, node.param});
  Values results;
  for (size_t i = 0; i < call.outputs.size(); ++i) results.push_back(first + static_cast<ValueId>(i));
  return results;
}

}  // namespace spmdx::rules
