// SPDX-License-Identifier: Apache-2.0
// OpBuilder: writes typed aten nodes into a graph, for the expansions of composite ops.
#pragma once
#include "graph/args.h"
#include "rules/build/builder.h"
#include "rules/rule/rule.h"

namespace spmdx::rules {

// A scalar argument of the node that is expanded: a constant, or one of its parameters.
struct Scalar {
  Arg value;
  uint32_t num_params = 0;
  uint32_t param = 0;
};

bool is_cut(const Graph& graph, ValueId value, size_t dim);  // as far as is known

class OpBuilder {
 public:
  OpBuilder(Builder& builder, const Node& node) : builder_(builder), node_(node) {}

  // ---- the node ------------------------------------------------------------------------------------
  const Call& call() const { return *node_.call; }
  ValueId input(size_t operand) const { return node_.inputs.at(operand); }
  Scalar scalar(size_t arg) const;
  const TensorType& output(size_t index) const { return call().outputs.at(index); }

  // ---- values ----------------------------------------------------------------------------------------
  const Shape& shape(ValueId value) const { return builder_.type(value).shape; }
  DType dtype(ValueId value) const { return builder_.type(value).dtype; }
  int64_t parts(ValueId value, size_t dim) const;  // that the dim is cut into; of the mesh where not known yet
  bool is_cut(ValueId value, size_t dim) const { return rules::is_cut(builder_.graph(), value, dim); }
  const Node* producer(ValueId value) const;  // null for an input; valid until the next node

  ValueId cast(ValueId value, DType dtype);  // itself where nothing changes
  ValueId wide(ValueId value);               // at least f32
  ValueId view(ValueId value, Shape shape);
  ValueId expand(ValueId value, Shape shape);
  ValueId unary(std::string op, ValueId value);                 // "aten.exp"; the type stays
  ValueId binary(const std::string& op, ValueId a, ValueId b);  // broadcasts; the wider dtype
  ValueId add(ValueId a, ValueId b);
  ValueId sub(ValueId a, ValueId b);
  ValueId mul(ValueId a, ValueId b) { return binary("aten.mul.Tensor", a, b); }
  ValueId div(ValueId a, ValueId b) { return binary("aten.div.Tensor", a, b); }
  ValueId equal(ValueId a, ValueId b);                         // b8
  ValueId compare(std::string op, ValueId value, Arg scalar);  // "aten.ne.Scalar"; b8
  ValueId mul(ValueId value, const Scalar& scalar) { return with(std::string("aten.mul.Scalar"), value, scalar); }
  ValueId mul(ValueId value, double scalar) { return mul(value, Scalar{scalar}); }
  ValueId div(ValueId value, double scalar) { return with("aten.div.Scalar", value, Scalar{scalar}); }
  ValueId add(ValueId value, const Scalar& scalar);
  ValueId pow(ValueId value, const Scalar& scalar) { return with("aten.pow.Tensor_Scalar", value, scalar); }
  ValueId lerp(ValueId from, ValueId to, const Scalar& weight);
  ValueId where_or(ValueId condition, ValueId a, Arg scalar);  // aten.where.ScalarOther
  ValueId full(Shape shape, Arg value, DType dtype);
  ValueId iota(int64_t count, DType dtype);  // 0 … count−1

  // Reductions; an empty `dims` is all.
  ValueId sum(ValueId value, std::vector<int64_t> dims, bool keepdim, DType dtype);
  ValueId extremum(std::string op, ValueId value, std::vector<int64_t> dims, bool keepdim);  // "aten.amax"

  // The op of the node itself on other operands, with other arguments.
  ValueId emit(std::string op, std::vector<Arg> args, std::vector<ValueId> inputs, std::vector<TensorType> outputs,
               const Scalar& scalar = {}) {
    return builder_.emit(std::move(op), std::move(args), std::move(inputs), std::move(outputs), scalar.num_params,
                         scalar.param);
  }

 private:
  ValueId with(std::string op, ValueId value, const Scalar& scalar);

  Builder& builder_;
  const Node& node_;
};

DType wide(DType dtype);  // f32 for 16-bit floats
Shape broadcast(const Shape& a, const Shape& b);
std::vector<int64_t> all_dims(const Shape& shape);
Shape reduced_shape(const Shape& shape, const std::vector<int64_t>& dims, bool keepdim);

}  // namespace spmdx::rules
