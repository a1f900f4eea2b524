// SPDX-License-Identifier: Apache-2.0
// Builds canonical calls from the types of operands.
#include "bridge/tensor/calls.h"

namespace spmdx::bridge {
namespace {

Shape strided_extent(const TensorType& x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  Shape sizes = x.shape;
  sizes[dim] = (end - start + step - 1) / step;
  return sizes;
}

}  // namespace

CallRef make_call(std::string op, std::vector<TensorType> inputs, std::vector<Arg> rest, TensorType output,
                  uint32_t num_params) {
  Call call;
  call.op = std::move(op);
  for (uint32_t i = 0; i < inputs.size(); ++i) call.args.emplace_back(TensorArg{i});
  for (auto& arg : rest) call.args.push_back(std::move(arg));
  call.inputs = std::move(inputs);
  call.outputs = {std::move(output)};
  call.num_params = num_params;
  return seal(std::move(call));
}

CallRef view_call(const TensorType& x, const Shape& sizes) {
  return make_call("aten.view", {x}, {sizes}, {x.dtype, sizes, false});
}

CallRef permute_call(const TensorType& x, const std::vector<int64_t>& dims) {
  Shape sizes(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) sizes[i] = x.shape[dims[i]];
  return make_call("aten.permute", {x}, {dims}, {x.dtype, sizes, false});
}

CallRef slice_call(const TensorType& x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  return make_call("aten.slice.Tensor", {x}, {dim, start, end, step},
                   {x.dtype, strided_extent(x, dim, start, end, step), false});
}

CallRef select_call(const TensorType& x, int64_t dim, int64_t index) {
  Shape sizes = x.shape;
  sizes.erase(sizes.begin() + dim);
  return make_call("aten.select.int", {x}, {dim, index}, {x.dtype, sizes, false});
}

CallRef expand_call(const TensorType& x, const Shape& sizes) {
  return make_call("aten.expand", {x}, {sizes, false}, {x.dtype, sizes, false});
}

CallRef cast_call(const TensorType& x, DType dtype) {
  const Arg none = std::monostate{};
  return make_call("aten._to_copy", {x}, {dtype, none, none, none, false, none}, {dtype, x.shape, false});
}

CallRef as_strided_call(const TensorType& x, const Shape& sizes, const std::vector<int64_t>& strides, int64_t offset,
                        const std::vector<int64_t>& in_strides) {
  return make_call("spmdx.as_strided", {x}, {sizes, strides, offset, in_strides}, {x.dtype, sizes, false});
}

}  // namespace spmdx::bridge
