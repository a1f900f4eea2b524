// SPDX-License-Identifier: Apache-2.0
// OpBuilder: writes typed aten nodes into a graph, for the expansions of composite ops.
#pragma once
#include "graph/args.h"
#include "rules/build/builder.h"
#include "rules/rule/rule.h"

namespace spmdx::rules {

// A scalar argument of the node that is expanded: a constant, or a parameter of the plan.
struct Scalar {
  Arg value;
  uint32_t num_params = 0;  // 1 for a parameter
  uint32_t param = 0;       // its number in the plan
};

// Whether the value has a known sharding that cuts this dim.
bool is_cut(const Graph& graph, ValueId value, size_t dim);

class OpBuilder {
 public:
  OpBuilder(Builder& builder, const Node& node) : builder_(builder), node_(node) {}

  // ---- the node that is expanded --------------------------------------------------------------------
  const Call& call() const { return *node_.call; }
  ValueId input(size_t operand) const { return node_.inputs.at(operand); }
  Scalar scalar(size_t arg) const;  // of argument `arg`; InternalError if the call has fewer
  const TensorType& output(size_t index) const { return call().outputs.at(index); }

  // ---- values ----------------------------------------------------------------------------------------
  const Shape& shape(ValueId value) const { return builder_.type(value).shape; }
  DType dtype(ValueId value) const { return builder_.type(value).dtype; }
  int64_t parts(ValueId value, size_t dim) const;  // parts of a dim; of one with no known cut, devices of the mesh
  bool is_cut(ValueId value, size_t dim) const { return rules::is_cut(builder_.graph(), value, dim); }
  const Node* producer(ValueId value) const;  // null for an input; valid until a node is appended

  // ---- append nodes; return the result -----------------------------------------------------------------
  // cast, view and expand return the value itself where it has the dtype or shape already.
  ValueId cast(ValueId value, DType dtype);
  ValueId wide(ValueId value);  // 16-bit floats become f32
  ValueId view(ValueId value, Shape shape);
  ValueId expand(ValueId value, Shape shape);
  ValueId unary(std::string op, ValueId value);                 // such as "aten.exp": the result has the value's type
  ValueId binary(const std::string& op, ValueId a, ValueId b);  // broadcasts, and casts to the wider of both dtypes
  ValueId add(ValueId a, ValueId b);
  ValueId sub(ValueId a, ValueId b);
  ValueId mul(ValueId a, ValueId b) { return binary("aten.mul.Tensor", a, b); }
  ValueId div(ValueId a, ValueId b) { return binary("aten.div.Tensor", a, b); }
  ValueId equal(ValueId a, ValueId b);                         // of dtype b8
  ValueId compare(std::string op, ValueId value, Arg scalar);  // such as "aten.ne.Scalar"; of dtype b8
  ValueId mul(ValueId value, const Scalar& scalar) { return with(std::string("aten.mul.Scalar"), value, scalar); }
  ValueId mul(ValueId value, double scalar) { return mul(value, Scalar{scalar}); }
  ValueId div(ValueId value, double scalar) { return with("aten.div.Scalar", value, Scalar{scalar}); }
  ValueId add(ValueId value, const Scalar& scalar);
  ValueId pow(ValueId value, const Scalar& scalar) { return with("aten.pow.Tensor_Scalar", value, scalar); }
  ValueId lerp(ValueId from, ValueId to, const Scalar& weight);
  ValueId where_or(ValueId condition, ValueId a, Arg scalar);  // `a` where the condition holds, else the scalar
  ValueId full(Shape shape, Arg value, DType dtype);
  ValueId iota(int64_t count, DType dtype);  // 0 … count−1

  // Reductions; empty `dims` stand for all dims.
  ValueId sum(ValueId value, std::vector<int64_t> dims, bool keepdim, DType dtype);
  ValueId extremum(std::string op, ValueId value, std::vector<int64_t> dims, bool keepdim);  // "aten.amax", "aten.amin"

  // Any other op, with its arguments in schema order. Returns the first result; the others follow it.
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

DType wide(DType dtype);                            // f32 for 16-bit floats, else the dtype itself
Shape broadcast(const Shape& a, const Shape& b);    // REQUIRES: they broadcast, else InternalError
std::vector<int64_t> all_dims(const Shape& shape);  // 0, 1, … rank − 1
// The shape of a reduction over `dims`; of one over all dims where `dims` is empty.
Shape reduced_shape(const Shape& shape, const std::vector<int64_t>& dims, bool keepdim);

}  // namespace spmdx::rules
