// SPDX-License-Identifier: Apache-2.0
// Writer: writes ops of StableHLO as MLIR text, in its generic form.
// Source: StableHLO specification, version 1.0.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace spmdx::emit {

// A value of the text.
struct Tensor {
  std::string name;  // "%12"
  TensorType type;
};

std::string mlir_type(const TensorType& type);                                              // "tensor<4x8xf32>"
std::string mlir_array(const std::vector<int64_t>& numbers);                                // "array<i64: 1, 2>"
std::string mlir_list(const std::vector<int64_t>& numbers);                                 // "[1, 2]"
std::string mlir_pairs(const std::vector<int64_t>& low, const std::vector<int64_t>& high);  // of a padding
std::string precision(DType dtype);  // the attribute by which products of floats are as exact as their type

class Writer {
 public:
  // Names of its values begin with a prefix: a region's are others than those around it.
  explicit Writer(std::string prefix = "%v") : prefix_(std::move(prefix)) {}
  const std::string& text() const { return text_; }

  // One op of one result; `name` is of StableHLO, or has another dialect before a dot: "chlo.erf".
  Tensor op(std::string_view name, const std::vector<Tensor>& operands, TensorType result,
            const std::string& attributes = {}, const std::string& region = {});
  std::vector<Tensor> ops(std::string_view name, const std::vector<Tensor>& operands,
                          const std::vector<TensorType>& results, const std::string& attributes,
                          const std::string& region);

  Tensor constant(TensorType type, double number);  // all its elements are the number, which an integer may be
  Tensor constant(TensorType type, int64_t number);
  Tensor like(const Tensor& tensor, double number) { return constant(tensor.type, number); }
  Tensor lowest(TensorType type);  // −∞, or the least integer
  Tensor highest(TensorType type);

  Tensor unary(std::string_view name, const Tensor& a) { return op(name, {a}, a.type); }
  // Of bools what is added, or the larger one, is "or", which not all who compile an addition of single bits know.
  Tensor binary(std::string_view name, const Tensor& a, const Tensor& b);
  Tensor compare(std::string_view direction, const Tensor& a, const Tensor& b);  // "LT"
  Tensor select(const Tensor& which, const Tensor& yes, const Tensor& no) {
    return op("select", {which, yes, no}, yes.type);
  }
  // Integers, each moved to the nearest from `least` to `most`.
  Tensor within(const Tensor& a, int64_t least, int64_t most) {
    return binary("minimum", binary("maximum", a, constant(a.type, least)), constant(a.type, most));
  }
  Tensor convert(const Tensor& a, DType dtype);
  Tensor reshape(const Tensor& a, const Shape& shape);
  Tensor broadcast(const Tensor& a, const Shape& shape, const std::vector<int64_t>& dims);
  Tensor broadcast(const Tensor& a, const Shape& shape);  // by PyTorch's rules
  Tensor transpose(const Tensor& a, const std::vector<int64_t>& dims);
  Tensor slice(const Tensor& a, const Shape& starts, const Shape& limits, const Shape& strides);
  Tensor iota(TensorType type, int64_t dim);
  Tensor concatenate(const std::vector<Tensor>& parts, int64_t dim);
  // Elements that are 0 around a tensor, and between its elements; fewer of its own where a number is negative.
  Tensor pad(const Tensor& a, const std::vector<int64_t>& low, const std::vector<int64_t>& high,
             const std::vector<int64_t>& between);
  // Over dims, which the result has no more, by "add", "maximum" …, beginning with `start`.
  Tensor reduce(const Tensor& a, const Tensor& start, const std::vector<int64_t>& dims, std::string_view by);
  // Added up in f32 at least.
  Tensor sum(const Tensor& a, const std::vector<int64_t>& dims);

  // The text of a region, of scalars of these dtypes, which `body` writes, and what it gives.
  using Body = std::function<std::vector<Tensor>(Writer& write, const std::vector<Tensor>& scalars)>;
  static std::string region(const std::vector<DType>& dtypes, const Body& body);
  // A region of two scalars by which elements are put together, and one that takes the second of them.
  static std::string combining(std::string_view by, DType dtype);
  static std::string replacing(DType dtype);
  std::string fresh() { return prefix_ + std::to_string(next_++); }

 private:
  Tensor splat(TensorType type, const std::string& element);

  std::string prefix_, text_;
  uint32_t next_ = 0;
};

Tensor is_nan(Writer& write, const Tensor& a);
// In PyTorch's order, in which NaN is the largest number of all; equal ones do not come before each other.
Tensor comes_before(Writer& write, const Tensor& a, const Tensor& b, bool descending);
// Of two elements and where they are: whether the first is the largest (or the least), NaN before all, and of equal
// ones that which is first.
Tensor wins(Writer& write, const Tensor& a, const Tensor& at, const Tensor& b, const Tensor& bt, bool is_max,
            bool last_nan = false);  // of two NaN the last one

}  // namespace spmdx::emit
