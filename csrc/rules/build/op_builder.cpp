// SPDX-License-Identifier: Apache-2.0
// OpBuilder: puts arguments in schema order, and computes the types of results.
#include "rules/build/op_builder.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace spmdx::rules {
namespace {

constexpr TensorArg kFirst{0}, kSecond{1};
const Arg kNothing = std::monostate{};

}  // namespace

DType wide(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype; }

Shape broadcast(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    internal_check(x == y || x == 1 || y == 1, "an expansion broadcasts " + str(a) + " with " + str(b));
    result[result.size() - 1 - i] = x == 1 ? y : x;
  }
  return result;
}

std::vector<int64_t> all_dims(const Shape& shape) {
  std::vector<int64_t> dims(shape.size());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

Shape reduced_shape(const Shape& shape, const std::vector<int64_t>& dims, bool keepdim) {
  Shape result;
  const auto rank = static_cast<int64_t>(shape.size());
  for (int64_t d = 0; d < rank; ++d) {
    auto is_this = [&](int64_t x) { return x == d || x + rank == d; };
    const bool gone = dims.empty() || std::any_of(dims.begin(), dims.end(), is_this);
    if (!gone)
      result.push_back(shape[static_cast<size_t>(d)]);
    else if (keepdim)
      result.push_back(1);
  }
  return result;
}

Scalar OpBuilder::scalar(size_t arg) const {
  internal_check(arg < call().args.size(), "an expansion misses an argument of " + call().op);
  const Arg& value = call().args[arg];
  if (const auto* real = std::get_if<RealParam>(&value)) return {RealParam{0}, 1, node_.param + real->index};
  if (const auto* whole = std::get_if<IntParam>(&value)) return {IntParam{0}, 1, node_.param + whole->index};
  return {value};
}

int64_t OpBuilder::parts(ValueId value, size_t dim) const {
  const Graph& graph = builder_.graph();
  if (!graph.mesh) return 1;
  const ShardingRef known = graph.values.at(value).sharding;
  const SubAxisSet sub_axes = known ? sub_axis_set(known->dims.at(dim).sub_axes) : 0;
  return sub_axes ? graph.mesh->group_size(sub_axes) : graph.mesh->size();
}

bool is_cut(const Graph& graph, ValueId value, size_t dim) {
  const ShardingRef known = graph.values.at(value).sharding;
  return known && !known->dims.at(dim).empty();
}

const Node* OpBuilder::producer(ValueId value) const {
  const Graph& graph = builder_.graph();
  const NodeId node = graph.values.at(value).producer;
  return node == kNone ? nullptr : &graph.nodes[node];
}

ValueId OpBuilder::cast(ValueId value, DType dtype) {
  if (this->dtype(value) == dtype) return value;
  return emit("aten._to_copy", {kFirst, dtype, kNothing, kNothing, kNothing, false, kNothing}, {value},
              {{dtype, shape(value)}});
}

ValueId OpBuilder::wide(ValueId value) { return cast(value, rules::wide(dtype(value))); }

ValueId OpBuilder::view(ValueId value, Shape shape) {
  if (this->shape(value) == shape) return value;
  const DType type = dtype(value);
  return emit("aten.view", {kFirst, std::vector<int64_t>(shape)}, {value}, {{type, shape}});
}

ValueId OpBuilder::expand(ValueId value, Shape shape) {
  if (this->shape(value) == shape) return value;
  const DType type = dtype(value);
  return emit("aten.expand", {kFirst, std::vector<int64_t>(shape), false}, {value}, {{type, shape}});
}

ValueId OpBuilder::unary(std::string op, ValueId value) {
  return emit(std::move(op), {kFirst}, {value}, {{dtype(value), shape(value)}});
}

// The dtypes may differ: a norm combines a 16-bit activation with f32 statistics.
ValueId OpBuilder::binary(const std::string& op, ValueId a, ValueId b) {
  const DType type = itemsize(dtype(a)) >= itemsize(dtype(b)) ? dtype(a) : dtype(b);
  a = cast(a, type);
  b = cast(b, type);
  std::vector<Arg> args = {kFirst, kSecond};
  if (op == "aten.add.Tensor" || op == "aten.sub.Tensor") args.emplace_back(int64_t{1});
  return emit(op, std::move(args), {a, b}, {{type, broadcast(shape(a), shape(b))}});
}

ValueId OpBuilder::add(ValueId a, ValueId b) { return binary("aten.add.Tensor", a, b); }
ValueId OpBuilder::sub(ValueId a, ValueId b) { return binary("aten.sub.Tensor", a, b); }

ValueId OpBuilder::equal(ValueId a, ValueId b) {
  return emit("aten.eq.Tensor", {kFirst, kSecond}, {a, b}, {{DType::b8, broadcast(shape(a), shape(b))}});
}

ValueId OpBuilder::compare(std::string op, ValueId value, Arg scalar) {
  return emit(std::move(op), {kFirst, std::move(scalar)}, {value}, {{DType::b8, shape(value)}});
}

ValueId OpBuilder::add(ValueId value, const Scalar& scalar) {
  return emit("aten.add.Scalar", {kFirst, scalar.value, int64_t{1}}, {value}, {{dtype(value), shape(value)}}, scalar);
}

ValueId OpBuilder::lerp(ValueId from, ValueId to, const Scalar& weight) {
  return emit("aten.lerp.Scalar", {kFirst, kSecond, weight.value}, {from, to},
              {{dtype(from), broadcast(shape(from), shape(to))}}, weight);
}

ValueId OpBuilder::where_or(ValueId condition, ValueId a, Arg scalar) {
  return emit("aten.where.ScalarOther", {kFirst, kSecond, std::move(scalar)}, {condition, a},
              {{dtype(a), broadcast(shape(condition), shape(a))}});
}

ValueId OpBuilder::full(Shape shape, Arg value, DType dtype) {
  return emit("aten.full", {std::vector<int64_t>(shape), std::move(value), dtype, kNothing, kNothing, kNothing}, {},
              {{dtype, shape}});
}

ValueId OpBuilder::iota(int64_t count, DType dtype) {
  return emit("aten.arange.start_step", {int64_t{0}, count, int64_t{1}, dtype, kNothing, kNothing, kNothing}, {},
              {{dtype, {count}}});
}

ValueId OpBuilder::sum(ValueId value, std::vector<int64_t> dims, bool keepdim, DType dtype) {
  Shape result = reduced_shape(shape(value), dims, keepdim);
  return emit("aten.sum.dim_IntList", {kFirst, std::move(dims), keepdim, dtype}, {value}, {{dtype, std::move(result)}});
}

ValueId OpBuilder::extremum(std::string op, ValueId value, std::vector<int64_t> dims, bool keepdim) {
  Shape result = reduced_shape(shape(value), dims, keepdim);
  return emit(std::move(op), {kFirst, std::move(dims), keepdim}, {value}, {{dtype(value), std::move(result)}});
}

ValueId OpBuilder::with(std::string op, ValueId value, const Scalar& scalar) {
  return emit(std::move(op), {kFirst, scalar.value}, {value}, {{dtype(value), shape(value)}}, scalar);
}

}  // namespace spmdx::rules
