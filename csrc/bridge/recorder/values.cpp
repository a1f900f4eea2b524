// SPDX-License-Identifier: Apache-2.0
// What recorded values are computed with besides the user's ops.
#include "bridge/recorder/values.h"

#include "bridge/recorder/recorder.h"
#include "bridge/tensor/calls.h"

namespace spmdx::bridge {
namespace {

const TensorType& type(ValueId value) { return Recorder::instance().type(value); }

}  // namespace

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
