// SPDX-License-Identifier: Apache-2.0
// Elementwise ops: of dtypes and shapes that are the same already, as decompositions leave them.
#include <algorithm>
#include <cmath>
#include <optional>

#include "emit/rows/site.h"

namespace spmdx::emit {
namespace {

// The type in which operands are: of the first tensor, spread over the result.
TensorType of_operands(const Site& site) {
  for (const TensorType& type : site.call().inputs)
    if (!type.shape.empty() || site.result().shape.empty()) return {type.dtype, site.result().shape};
  return {site.call().inputs.at(0).dtype, site.result().shape};
}

Row unary(std::string_view name) {
  return [name](Site& site) -> std::vector<Tensor> { return {site.write.unary(name, site.tensor(0))}; };
}

Row binary(std::string_view name) {
  return [name](Site& site) -> std::vector<Tensor> {
    const TensorType type = of_operands(site);
    return {site.write.binary(name, site.in(0, type), site.in(1, type))};
  };
}

Row compare(std::string_view direction) {
  return [direction](Site& site) -> std::vector<Tensor> {
    const TensorType type = of_operands(site);
    return {site.write.compare(direction, site.in(0, type), site.in(1, type))};
  };
}

// An integer that is divided by 0 is an error, and none is made of the least one by −1.
Tensor divisor(Site& site, const TensorType& type) {
  const Tensor by = site.in(1, type);
  if (!is_floating(type.dtype)) site.require(site.write.compare("NE", by, site.write.constant(type, int64_t{0})));
  return by;
}

std::vector<Tensor> division(Site& site) {
  const TensorType type = of_operands(site);
  return {site.write.binary("divide", site.in(0, type), divisor(site, type))};
}

// The remainder that has the sign of the dividend.
std::vector<Tensor> fmod(Site& site) {
  const TensorType type = of_operands(site);
  return {site.write.binary("remainder", site.in(0, type), divisor(site, type))};
}

// The remainder that has the sign of the divisor.
std::vector<Tensor> remainder(Site& site) {
  const TensorType type = of_operands(site);
  Writer& write = site.write;
  const Tensor by = divisor(site, type), zero = write.constant(type, int64_t{0});
  const Tensor rest = write.binary("remainder", site.in(0, type), by);
  const Tensor differ = write.compare("NE", write.compare("LT", rest, zero), write.compare("LT", by, zero));
  const Tensor moves = write.binary("and", differ, write.compare("NE", rest, zero));
  return {write.select(moves, write.binary("add", rest, by), rest)};
}

// Of two numbers the one that is one.
Row one_that_is_a_number(std::string_view name) {
  return [name](Site& site) -> std::vector<Tensor> {
    Writer& write = site.write;
    const TensorType type = of_operands(site);
    const Tensor a = site.in(0, type), b = site.in(1, type);
    const Tensor both = write.binary(name, a, b);
    if (!is_floating(type.dtype)) return {both};
    return {write.select(is_nan(write, a), b, write.select(is_nan(write, b), a, both))};
  };
}

std::vector<Tensor> sign(Site& site) {  // that of NaN is 0
  Writer& write = site.write;
  const Tensor a = site.tensor(0);
  if (a.type.dtype == DType::b8) return {a};
  if (a.type.dtype == DType::u8) return {write.convert(write.compare("NE", a, write.like(a, 0)), DType::u8)};
  const Tensor found = write.unary("sign", a);
  if (!is_floating(a.type.dtype)) return {found};
  return {write.select(is_nan(write, a), write.like(a, 0), found)};
}

std::vector<Tensor> absolute(Site& site) {
  const Tensor a = site.tensor(0);
  const bool has_sign = a.type.dtype != DType::b8 && a.type.dtype != DType::u8;
  return {has_sign ? site.write.unary("abs", a) : a};
}

std::vector<Tensor> signbit(Site& site) {
  Writer& write = site.write;
  const Tensor a = site.tensor(0);
  if (!is_floating(a.type.dtype)) {
    if (a.type.dtype == DType::b8 || a.type.dtype == DType::u8) return {write.constant(site.result(), int64_t{0})};
    return {write.compare("LT", a, write.like(a, 0))};
  }
  const DType whole = itemsize(a.type.dtype) == 8 ? DType::i64 : itemsize(a.type.dtype) == 4 ? DType::i32 : DType::i16;
  const Tensor bits = write.op("bitcast_convert", {a}, {whole, a.type.shape});
  return {write.compare("LT", bits, write.like(bits, 0))};
}

std::vector<Tensor> truncated(Site& site) {
  Writer& write = site.write;
  const Tensor a = site.tensor(0);
  if (!is_floating(a.type.dtype)) return {a};
  const Tensor is_negative = write.compare("LT", a, write.like(a, 0));
  const Tensor whole = write.select(is_negative, write.unary("ceil", a), write.unary("floor", a));
  return {whole};
}

Row rounded(std::string_view name) {
  return [name](Site& site) -> std::vector<Tensor> {
    const Tensor a = site.tensor(0);
    return {is_floating(a.type.dtype) ? site.write.unary(name, a) : a};
  };
}

std::vector<Tensor> where(Site& site) {
  const TensorType& type = site.result();
  return {site.write.select(site.in(0, {DType::b8, type.shape}), site.in(1, type), site.in(2, type))};
}

// As a processor converts: out of range is the least integer, of which narrow types keep the last bits.
Tensor to_integer(Writer& write, const Tensor& a, DType to) {
  const DType wide = to == DType::u8 ? DType::i64 : itemsize(to) < 4 ? DType::i32 : to;
  const double end = itemsize(wide) == 8 ? 0x1p63 : 0x1p31;
  const Tensor exact = itemsize(a.type.dtype) < 4 ? write.convert(a, DType::f32) : a;
  const Tensor is_in = write.binary("and", write.compare("GE", exact, write.like(exact, -end)),
                                    write.compare("LT", exact, write.like(exact, end)));
  const Tensor whole = write.convert(exact, wide);
  return write.convert(write.select(is_in, whole, write.lowest(whole.type)), to);
}

std::vector<Tensor> converted(Site& site) {
  Writer& write = site.write;
  const Tensor a = site.tensor(0);
  const DType to = site.result().dtype;
  if (to == DType::b8 && a.type.dtype != DType::b8) return {write.compare("NE", a, write.like(a, 0))};
  if (is_floating(a.type.dtype) && !is_floating(to)) return {to_integer(write, a, to)};
  return {write.convert(a, to)};
}

Tensor one_by(Writer& write, const Tensor& a) { return write.binary("divide", write.like(a, 1), a); }

std::vector<Tensor> reciprocal(Site& site) {
  const Tensor a = site.tensor(0);
  return {one_by(site.write, a)};
}

// As PyTorch writes powers by these numbers; a fourth one is a square's square.
std::optional<Tensor> simple_power(Writer& write, const Tensor& a, const Arg& by) {
  if (is_number(by, -0.5)) return write.unary("rsqrt", a);
  if (is_number(by, 0.5)) return write.unary("sqrt", a);
  if (is_number(by, 0)) return write.like(a, 1);
  if (is_number(by, 1)) return a;
  if (is_number(by, -1)) return one_by(write, a);
  if (!is_number(by, 2) && !is_number(by, 3) && !is_number(by, 4) && !is_number(by, -2)) return std::nullopt;
  const Tensor square = write.binary("multiply", a, a);
  if (is_number(by, -2)) return one_by(write, square);
  if (is_number(by, 2)) return square;
  return write.binary("multiply", square, is_number(by, 3) ? a : square);
}

std::vector<Tensor> power(Site& site) {
  const TensorType type = of_operands(site);
  if (!is_floating(type.dtype)) refuse(site, "powers of integers are those of PyTorch");
  if (const auto made = simple_power(site.write, site.in(0, type), argument(site.call(), 1))) return {*made};
  return {site.write.binary("power", site.in(0, type), site.in(1, type))};
}

Row predicate_of_floats(std::string_view name) {
  return [name](Site& site) -> std::vector<Tensor> {
    const Tensor a = site.tensor(0);
    if (!is_floating(a.type.dtype)) return {site.write.constant(site.result(), int64_t{name == "is_finite"})};
    if (name == "nan") return {is_nan(site.write, a)};
    return {site.write.op(name, {a}, site.result())};
  };
}

// A shift by as many bits as the type has, or more, gives what is left of the sign.
std::vector<Tensor> shifted_right(Site& site) {
  const TensorType type = of_operands(site);
  const char* name = type.dtype == DType::u8 ? "shift_right_logical" : "shift_right_arithmetic";
  return {site.write.binary(name, site.in(0, type), site.in(1, type))};
}

}  // namespace

void add_elementwise(Table& table) {
  for (const auto& [op, name] :
       std::vector<std::pair<const char*, const char*>>{{"prims.neg", "negate"},
                                                        {"prims.exp", "exponential"},
                                                        {"prims.expm1", "exponential_minus_one"},
                                                        {"prims.log", "log"},
                                                        {"prims.log1p", "log_plus_one"},
                                                        {"prims.rsqrt", "rsqrt"},
                                                        {"prims.sqrt", "sqrt"},
                                                        {"prims.sin", "sine"},
                                                        {"prims.cos", "cosine"},
                                                        {"prims.tanh", "tanh"},
                                                        {"prims.bitwise_not", "not"}})
    table[op] = unary(name);
  for (const auto& [op, name] : std::vector<std::pair<const char*, const char*>>{{"prims.add", "add"},
                                                                                 {"prims.sub", "subtract"},
                                                                                 {"prims.mul", "multiply"},
                                                                                 {"prims.maximum", "maximum"},
                                                                                 {"prims.minimum", "minimum"},
                                                                                 {"prims.atan2", "atan2"},
                                                                                 {"prims.bitwise_and", "and"},
                                                                                 {"prims.bitwise_or", "or"},
                                                                                 {"prims.bitwise_xor", "xor"},
                                                                                 {"prims.shift_left", "shift_left"}})
    table[op] = binary(name);
  for (const auto& [op, direction] : std::vector<std::pair<const char*, const char*>>{{"prims.eq", "EQ"},
                                                                                      {"prims.ne", "NE"},
                                                                                      {"prims.lt", "LT"},
                                                                                      {"prims.le", "LE"},
                                                                                      {"prims.gt", "GT"},
                                                                                      {"prims.ge", "GE"}})
    table[op] = compare(direction);
  table["prims.ceil"] = rounded("ceil");
  table["prims.floor"] = rounded("floor");
  table["prims.round"] = rounded("round_nearest_even");
  table["prims.trunc"] = truncated;
  table["prims.abs"] = absolute;
  table["prims.sign"] = sign;
  table["prims.signbit"] = signbit;
  table["prims.div"] = division;
  table["prims.fmod"] = fmod;
  table["prims.remainder"] = remainder;
  table["prims.fmax"] = one_that_is_a_number("maximum");
  table["prims.fmin"] = one_that_is_a_number("minimum");
  table["prims.where"] = where;
  table["prims.convert_element_type"] = converted;
  table["prims.reciprocal"] = reciprocal;
  table["prims.pow"] = power;
  table["prims.shift_right_arithmetic"] = shifted_right;
  table["prims.isfinite"] = predicate_of_floats("is_finite");
  table["aten.isnan"] = predicate_of_floats("nan");
}

}  // namespace spmdx::emit
