// SPDX-License-Identifier: Apache-2.0
// Writer: one line an op.
#include "emit/mlir/writer.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/error.h"

namespace spmdx::emit {
namespace {

// Terms, of which more are added up dim by dim: some compilers add them one after the other, and what is rounded off
// grows with how many there are.
constexpr int64_t kLongSum = 1024;

std::string_view element(DType dtype) {
  if (dtype == DType::b8) return "i1";
  if (dtype == DType::u8) return "ui8";
  const bool is_known = dtype <= DType::i64;
  if (!is_known) throw ShardingError("StableHLO is not written for " + std::string(name(dtype)) + ".");
  return name(dtype);
}

std::string joined(const std::vector<int64_t>& numbers, const char* between) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "" : between) + std::to_string(number);
  return text;
}

// MLIR takes numbers that are not finite as bits alone.
std::string bits(DType dtype, double number) {
  char text[32];
  const bool is_nan = std::isnan(number), is_negative = std::signbit(number);
  switch (dtype) {
    case DType::f64:
      std::snprintf(text, sizeof text, "0x%016" PRIX64, std::bit_cast<uint64_t>(number));
      break;
    case DType::f32:
      std::snprintf(text, sizeof text, "0x%08" PRIX32, std::bit_cast<uint32_t>(static_cast<float>(number)));
      break;
    case DType::bf16:
      std::snprintf(text, sizeof text, "0x%04X", (is_negative ? 0x8000u : 0u) | (is_nan ? 0x7FC0u : 0x7F80u));
      break;
    default:
      std::snprintf(text, sizeof text, "0x%04X", (is_negative ? 0x8000u : 0u) | (is_nan ? 0x7E00u : 0x7C00u));
  }
  return text;
}

double rounded(DType dtype, double number) {  // beyond the range of the type it is infinite
  if (dtype == DType::f32) return static_cast<float>(number);
  const double most = dtype == DType::f16 ? 65519.99 : dtype == DType::bf16 ? 3.3961775e38 : INFINITY;
  return std::abs(number) > most ? std::copysign(INFINITY, number) : number;
}

int64_t bits_of(DType dtype) { return itemsize(dtype) * 8; }

}  // namespace

std::string mlir_type(const TensorType& type) {
  std::string text = "tensor<";
  for (const int64_t size : type.shape) text += std::to_string(size) + "x";
  return text + std::string(element(type.dtype)) + ">";
}

std::string mlir_array(const std::vector<int64_t>& numbers) {
  return numbers.empty() ? "array<i64>" : "array<i64: " + joined(numbers, ", ") + ">";
}

std::string mlir_list(const std::vector<int64_t>& numbers) { return "[" + joined(numbers, ", ") + "]"; }

std::string mlir_pairs(const std::vector<int64_t>& low, const std::vector<int64_t>& high) {
  std::string text;
  for (size_t i = 0; i < low.size(); ++i) text += (i ? ", " : "") + mlir_list({low[i], high[i]});
  const std::string type = "tensor<" + std::to_string(low.size()) + "x2xi64>";
  return "dense<" + (low.empty() ? "" : "[" + text + "]") + "> : " + type;
}

std::string precision(DType dtype) {
  const char* how = dtype == DType::f32 || dtype == DType::f64 ? "HIGHEST" : "DEFAULT";
  const std::string one = "#stablehlo<precision " + std::string(how) + ">";
  return "precision_config = [" + one + ", " + one + "]";
}

Tensor Writer::op(std::string_view name, const std::vector<Tensor>& operands, TensorType result,
                  const std::string& attributes, const std::string& region) {
  return ops(name, operands, {std::move(result)}, attributes, region)[0];
}

std::vector<Tensor> Writer::ops(std::string_view name, const std::vector<Tensor>& operands,
                                const std::vector<TensorType>& results, const std::string& attributes,
                                const std::string& region) {
  const std::string dialect = name.find('.') == std::string_view::npos ? "stablehlo." : "";
  const std::string made = fresh();
  std::vector<Tensor> found;
  std::string names, types, kinds;
  for (const Tensor& operand : operands) {
    names += (names.empty() ? "" : ", ") + operand.name;
    types += (types.empty() ? "" : ", ") + mlir_type(operand.type);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    kinds += (i ? ", " : "") + mlir_type(results[i]);
    found.push_back({results.size() == 1 ? made : made + "#" + std::to_string(i), results[i]});
  }
  text_ += "  " + made + (results.size() == 1 ? "" : ":" + std::to_string(results.size())) + " = \"" + dialect;
  text_.append(name) += "\"(" + names + ")";
  if (!region.empty()) text_ += " ({\n" + region + "  })";
  if (!attributes.empty()) text_ += " {" + attributes + "}";
  text_ += " : (" + types + ") -> " + (results.size() == 1 ? kinds : "(" + kinds + ")") + "\n";
  return found;
}

Tensor Writer::splat(TensorType type, const std::string& element) {
  const std::string made = fresh(), kind = mlir_type(type);
  text_ += "  " + made + " = \"stablehlo.constant\"() {value = dense<" + element + "> : " + kind + "} : () -> " + kind +
           "\n";
  return {made, std::move(type)};
}

Tensor Writer::constant(TensorType type, double number) {
  if (type.dtype == DType::b8) return constant(std::move(type), int64_t{number != 0});
  if (!is_floating(type.dtype)) return constant(std::move(type), static_cast<int64_t>(number));
  const double rounds = rounded(type.dtype, number);
  char text[40];
  std::snprintf(text, sizeof text, "%.17e", number);
  const std::string written = std::isfinite(rounds) ? text : bits(type.dtype, rounds);
  return splat(std::move(type), written);
}

Tensor Writer::constant(TensorType type, int64_t number) {
  if (is_floating(type.dtype)) return constant(std::move(type), static_cast<double>(number));
  const int64_t bits = type.dtype == DType::b8 ? 64 : bits_of(type.dtype);
  const int64_t least = type.dtype == DType::u8 ? 0 : std::numeric_limits<int64_t>::min() >> (64 - bits);
  const int64_t most = type.dtype == DType::u8 ? 255 : std::numeric_limits<int64_t>::max() >> (64 - bits);
  if (number < least || number > most)
    throw ShardingError(std::to_string(number) + " is no number of " + std::string(name(type.dtype)) + ".");
  const std::string written = type.dtype == DType::b8 ? (number ? "true" : "false") : std::to_string(number);
  return splat(std::move(type), written);
}

Tensor Writer::lowest(TensorType type) {
  if (is_floating(type.dtype)) return constant(std::move(type), -INFINITY);
  const bool has_sign = type.dtype != DType::b8 && type.dtype != DType::u8;
  const int64_t least = has_sign ? std::numeric_limits<int64_t>::min() >> (64 - bits_of(type.dtype)) : 0;
  return constant(std::move(type), least);
}

Tensor Writer::highest(TensorType type) {
  if (is_floating(type.dtype)) return constant(std::move(type), static_cast<double>(INFINITY));
  if (type.dtype == DType::b8) return constant(std::move(type), int64_t{1});
  if (type.dtype == DType::u8) return constant(std::move(type), int64_t{255});
  const int64_t most = std::numeric_limits<int64_t>::max() >> (64 - bits_of(type.dtype));
  return constant(std::move(type), most);
}

Tensor Writer::binary(std::string_view name, const Tensor& a, const Tensor& b) {
  const bool is_bool = a.type.dtype == DType::b8;
  if (is_bool && (name == "add" || name == "maximum")) return op("or", {a, b}, a.type);
  if (is_bool && (name == "multiply" || name == "minimum")) return op("and", {a, b}, a.type);
  return op(name, {a, b}, a.type);
}

Tensor Writer::compare(std::string_view direction, const Tensor& a, const Tensor& b) {
  return op("compare", {a, b}, {DType::b8, a.type.shape},
            "comparison_direction = #stablehlo<comparison_direction " + std::string(direction) + ">");
}

Tensor Writer::convert(const Tensor& a, DType dtype) {
  return a.type.dtype == dtype ? a : op("convert", {a}, {dtype, a.type.shape});
}

Tensor Writer::reshape(const Tensor& a, const Shape& shape) {
  return a.type.shape == shape ? a : op("reshape", {a}, {a.type.dtype, shape});
}

Tensor Writer::broadcast(const Tensor& a, const Shape& shape, const std::vector<int64_t>& dims) {
  if (a.type.shape == shape) return a;
  return op("broadcast_in_dim", {a}, {a.type.dtype, shape}, "broadcast_dimensions = " + mlir_array(dims));
}

Tensor Writer::broadcast(const Tensor& a, const Shape& shape) {
  std::vector<int64_t> dims;
  const int64_t before = static_cast<int64_t>(shape.size()) - static_cast<int64_t>(a.type.shape.size());
  for (size_t d = 0; d < a.type.shape.size(); ++d) dims.push_back(before + static_cast<int64_t>(d));
  return broadcast(a, shape, dims);
}

Tensor Writer::transpose(const Tensor& a, const std::vector<int64_t>& dims) {
  Shape shape;
  bool is_same = true;
  for (size_t d = 0; d < dims.size(); ++d) {
    shape.push_back(a.type.shape[dims[d]]);
    is_same &= dims[d] == static_cast<int64_t>(d);
  }
  if (is_same) return a;
  return op("transpose", {a}, {a.type.dtype, shape}, "permutation = " + mlir_array(dims));
}

Tensor Writer::slice(const Tensor& a, const Shape& starts, const Shape& limits, const Shape& strides) {
  Shape shape;
  for (size_t d = 0; d < starts.size(); ++d) shape.push_back((limits[d] - starts[d] + strides[d] - 1) / strides[d]);
  return op("slice", {a}, {a.type.dtype, shape},
            "start_indices = " + mlir_array(starts) + ", limit_indices = " + mlir_array(limits) +
                ", strides = " + mlir_array(strides));
}

Tensor Writer::iota(TensorType type, int64_t dim) {
  return op("iota", {}, std::move(type), "iota_dimension = " + std::to_string(dim) + " : i64");
}

Tensor Writer::concatenate(const std::vector<Tensor>& parts, int64_t dim) {
  TensorType type = parts.at(0).type;
  type.shape[dim] = 0;
  for (const Tensor& part : parts) type.shape[dim] += part.type.shape[dim];
  return op("concatenate", parts, type, "dimension = " + std::to_string(dim) + " : i64");
}

Tensor Writer::pad(const Tensor& a, const std::vector<int64_t>& low, const std::vector<int64_t>& high,
                   const std::vector<int64_t>& between) {
  Shape shape;
  for (size_t d = 0; d < low.size(); ++d) {
    const int64_t size = a.type.shape[d];
    shape.push_back(size + std::max<int64_t>(size - 1, 0) * between[d] + low[d] + high[d]);
  }
  return op("pad", {a, constant({a.type.dtype, {}}, int64_t{0})}, {a.type.dtype, shape},
            "edge_padding_low = " + mlir_array(low) + ", edge_padding_high = " + mlir_array(high) +
                ", interior_padding = " + mlir_array(between));
}

Tensor Writer::reduce(const Tensor& a, const Tensor& start, const std::vector<int64_t>& dims, std::string_view by) {
  Shape shape;
  for (size_t d = 0; d < a.type.shape.size(); ++d) {
    bool is_kept = true;
    for (const int64_t dim : dims) is_kept &= dim != static_cast<int64_t>(d);
    if (is_kept) shape.push_back(a.type.shape[d]);
  }
  return op("reduce", {a, start}, {a.type.dtype, shape}, "dimensions = " + mlir_array(dims),
            combining(by, a.type.dtype));
}

Tensor Writer::sum(const Tensor& a, const std::vector<int64_t>& dims) {
  const bool is_short = is_floating(a.type.dtype) && itemsize(a.type.dtype) < 4;
  Tensor wide = is_short ? convert(a, DType::f32) : a;
  const Tensor zero = constant({wide.type.dtype, {}}, int64_t{0});
  std::vector<int64_t> left = dims;
  int64_t terms = 1;
  for (const int64_t dim : dims) terms *= a.type.shape[static_cast<size_t>(dim)];
  if (dims.size() > 1 && terms > kLongSum) {
    std::ranges::sort(left);
    wide = reduce(wide, zero, {left.back()}, "add");
    left.pop_back();
  }
  return convert(reduce(wide, zero, left, "add"), a.type.dtype);
}

std::string Writer::region(const std::vector<DType>& dtypes, const Body& body) {
  Writer inner("%r");
  std::vector<Tensor> scalars;
  std::string named, given, kinds;
  for (const DType dtype : dtypes) {
    scalars.push_back({inner.fresh(), {dtype, {}}});
    named += (named.empty() ? "" : ", ") + scalars.back().name + ": " + mlir_type(scalars.back().type);
  }
  for (const Tensor& made : body(inner, scalars)) {
    given += (given.empty() ? "" : ", ") + made.name;
    kinds += (kinds.empty() ? "" : ", ") + mlir_type(made.type);
  }
  return "  ^bb0(" + named + "):\n" + inner.text() + "  \"stablehlo.return\"(" + given + ") : (" + kinds + ") -> ()\n";
}

std::string Writer::combining(std::string_view by, DType dtype) {
  return region({dtype, dtype}, [by](Writer& write, const std::vector<Tensor>& both) -> std::vector<Tensor> {
    return {write.binary(by, both[0], both[1])};
  });
}

std::string Writer::replacing(DType dtype) {
  return region({dtype, dtype},
                [](Writer&, const std::vector<Tensor>& both) -> std::vector<Tensor> { return {both[1]}; });
}

Tensor is_nan(Writer& write, const Tensor& a) { return write.compare("NE", a, a); }

Tensor comes_before(Writer& write, const Tensor& a, const Tensor& b, bool descending) {
  const Tensor before = write.compare(descending ? "GT" : "LT", a, b);
  if (!is_floating(a.type.dtype)) return before;
  const Tensor &first = descending ? a : b, &second = descending ? b : a;
  const Tensor alone = write.binary("and", is_nan(write, first), write.unary("not", is_nan(write, second)));
  return write.binary("or", before, alone);
}

Tensor wins(Writer& write, const Tensor& a, const Tensor& at, const Tensor& b, const Tensor& bt, bool is_max,
            bool last_nan) {
  Tensor beyond = write.compare(is_max ? "GT" : "LT", a, b), ties = write.compare("EQ", a, b);
  if (is_floating(a.type.dtype)) {
    const Tensor nan = is_nan(write, a), other = is_nan(write, b), both = write.binary("and", nan, other);
    beyond = write.binary("or", beyond, write.binary("and", nan, write.unary("not", other)));
    if (last_nan)
      beyond = write.binary("or", beyond, write.binary("and", both, write.compare("GT", at, bt)));
    else
      ties = write.binary("or", ties, both);
  }
  return write.binary("or", beyond, write.binary("and", ties, write.compare("LT", at, bt)));
}

}  // namespace spmdx::emit
