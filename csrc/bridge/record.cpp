// SPDX-License-Identifier: Apache-2.0
// Canonical calls: built from operand types, recorded on values.
#include "bridge/record.h"

#include <numeric>

#include "bridge/tracer.h"

namespace spmdx::bridge {
namespace {

const TensorType& type(ValueId value) { return Recorder::instance().type(value); }

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

ValueId record_call(CallRef call, std::vector<ValueId> inputs, const std::vector<Param>& params) {
  return Recorder::instance().record(std::move(call), std::move(inputs), params);
}

ValueId view(ValueId x, const Shape& sizes) {
  return type(x).shape == sizes ? x : record_call(view_call(type(x), sizes), {x});
}

ValueId permute(ValueId x, const std::vector<int64_t>& dims) { return record_call(permute_call(type(x), dims), {x}); }

ValueId expand(ValueId x, const Shape& sizes) {
  return type(x).shape == sizes ? x : record_call(expand_call(type(x), sizes), {x});
}

ValueId cast(ValueId x, DType dtype) {
  return type(x).dtype == dtype && !type(x).wrapped_number ? x : record_call(cast_call(type(x), dtype), {x});
}

ValueId full_real(const Shape& sizes, double value, DType dtype) {
  static const Arg none = std::monostate{};
  return record_call(
      make_call("aten.full", {}, {sizes, RealParam{0}, dtype, none, none, none}, {dtype, sizes, false}, 1), {},
      {{.real = value}});
}

ValueId full_int(const Shape& sizes, int64_t value, DType dtype) {
  static const Arg none = std::monostate{};
  return record_call(make_call("aten.full", {}, {sizes, value, dtype, none, none, none}, {dtype, sizes, false}), {});
}

ValueId full_bool(const Shape& sizes, bool value, DType dtype) {
  static const Arg none = std::monostate{};
  return record_call(make_call("aten.full", {}, {sizes, value, dtype, none, none, none}, {dtype, sizes, false}), {});
}

ValueId iota(int64_t n) {
  const Arg none = std::monostate{};
  return record_call(make_call("aten.arange", {}, {n, DType::i64, none, none, none}, {DType::i64, {n}, false}), {});
}

ValueId scatter(ValueId base, ValueId index, ValueId source) {
  Call call;
  call.op = "aten.scatter.src";
  call.args = {TensorArg{0}, int64_t{0}, TensorArg{1}, TensorArg{2}};
  call.inputs = {type(base), type(index), type(source)};
  call.outputs = {type(base)};
  return record_call(seal(std::move(call)), {base, index, source});
}

}  // namespace spmdx::bridge
