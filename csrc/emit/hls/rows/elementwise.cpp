// SPDX-License-Identifier: Apache-2.0
// Elementwise ops: arithmetic, comparisons, choices and conversions.
#include <cmath>

#include "emit/hls/rows/site.h"

namespace spmdx::emit::hls {
namespace {

using Texts = std::vector<std::string>;

// What operands are: as the first tensor.
Elem of_operands(const Site& site) {
  const Elem elem = elem_of(site.call().inputs.at(0).dtype);
  return elem == Elem::wide ? Elem::real : elem;
}

Operand made(Site& site, Elem elem, const std::vector<Operand>& operands, const std::vector<Operator>& ops,
             const Expression& expression) {
  return elementwise(site.design, site.op(), elem, site.shape(), operands, ops, expression);
}

std::vector<Operand> pair(Site& site) {
  const Elem elem = of_operands(site);
  return {site.in(0, elem, site.shape()), site.in(1, elem, site.shape())};
}

// Which operand is all that is left of the op, since the other one changes nothing: 1 of a product, 0 of a sum. −1:
// none.
int neutral(const std::string& sign, const std::vector<Operand>& in) {
  const auto is = [&](size_t i, double number) { return in[i].kind == Operand::Kind::splat && in[i].splat == number; };
  if (sign == "*") return is(1, 1) ? 0 : is(0, 1) ? 1 : -1;
  if (sign == "+") return is(1, 0) ? 0 : is(0, 0) ? 1 : -1;
  return sign == "-" && is(1, 0) ? 0 : -1;
}

Row infix(const std::string& sign, Operator op) {
  return [sign, op](Site& site) -> std::vector<Operand> {
    const std::vector<Operand> operands = pair(site);
    if (const int left = neutral(sign, operands); left >= 0) return {operands[left]};
    return {made(site, site.elem(), operands, {op}, [&](const Texts& in) { return in[0] + " " + sign + " " + in[1]; })};
  };
}

Row call_of(const std::string& function, Operator op) {
  return [function, op](Site& site) -> std::vector<Operand> {
    const std::string type = type_text(of_operands(site));
    return {made(site, site.elem(), pair(site), {op},
                 [&](const Texts& in) { return function + "<" + type + ">(" + in[0] + ", " + in[1] + ")"; })};
  };
}

// A number by which all is divided is a factor of a fixed point, and of a float where that is as exact.
std::vector<Operand> division(Site& site) {
  if (!is_real(site.elem())) refuse(site, "integers are divided");
  std::vector<Operand> operands = pair(site);
  Operand& by = operands[1];
  int exponent = 0;
  const bool is_splat = by.kind == Operand::Kind::splat;
  if (is_splat && by.splat != 0 && (site.is_fixed() || std::frexp(std::abs(by.splat), &exponent) == 0.5)) {
    by.splat = 1 / by.splat;
    return {
        made(site, site.elem(), operands, {Operator::multiply}, [](const Texts& in) { return in[0] + " * " + in[1]; })};
  }
  return {made(site, site.elem(), operands, {Operator::divide},
               [](const Texts& in) { return "divide_of<number_t>(" + in[0] + ", " + in[1] + ")"; })};
}

Row unary(const std::string& before, Operator op) {
  return [before, op](Site& site) -> std::vector<Operand> {
    return {made(site, site.elem(), {site.tensor(0)}, {op}, [&](const Texts& in) { return before + in[0]; })};
  };
}

std::vector<Operand> inverted(Site& site) {
  const std::string sign = of_operands(site) == Elem::flag ? "!" : "~";
  return {made(site, site.elem(), {site.tensor(0)}, {Operator::logic}, [&](const Texts& in) { return sign + in[0]; })};
}

std::vector<Operand> chosen(Site& site) {
  const std::vector<Operand> operands = {site.in(0, Elem::flag, site.shape()), site.in(1, site.elem(), site.shape()),
                                         site.in(2, site.elem(), site.shape())};
  const std::string type = type_text(site.elem());
  return {made(site, site.elem(), operands, {Operator::logic}, [&](const Texts& in) {
    return in[0] + " ? " + type + "(" + in[1] + ") : " + type + "(" + in[2] + ")";
  })};
}

std::vector<Operand> as_result(Site& site, const Operand& a) {
  const Elem to = site.elem();
  if (a.elem == to || (is_real(a.elem) && is_real(to))) return {a};
  if (a.kind == Operand::Kind::splat) {
    Operand same = a;
    same.elem = to;
    same.splat = to == Elem::flag ? a.splat != 0 : to == Elem::whole ? std::trunc(a.splat) : a.splat;
    return {same};
  }
  const std::vector<Operator> round = {Operator::round};
  if (to == Elem::flag)
    return {made(site, to, {a}, {Operator::logic}, [](const Texts& in) { return in[0] + " != 0"; })};
  if (is_real(a.elem)) return {made(site, to, {a}, round, [](const Texts& in) { return "whole_of(" + in[0] + ")"; })};
  return {made(site, to, {a}, round, [](const Texts& in) { return "int(" + in[0] + ")"; })};
}

std::vector<Operand> converted(Site& site) { return as_result(site, site.tensor(0)); }
std::vector<Operand> copied(Site& site) { return as_result(site, site.in(1, site.elem(), site.shape())); }

std::vector<Operand> reciprocal(Site& site) {
  return {made(site, site.elem(), {site.tensor(0)}, {Operator::divide},
               [](const Texts& in) { return "divide_of<number_t>(acc_t(1), " + in[0] + ")"; })};
}

std::vector<Operand> power(Site& site) {
  if (!is_real(site.elem())) refuse(site, "powers of integers are those of PyTorch");
  const std::vector<Operand> operands = pair(site);
  const bool is_square = operands[1].kind == Operand::Kind::splat && operands[1].splat == 2;
  if (is_square)
    return {made(site, site.elem(), {operands[0]}, {Operator::multiply},
                 [](const Texts& in) { return in[0] + " * " + in[0]; })};
  if (operands[1].kind == Operand::Kind::splat && operands[1].splat == -0.5)
    return {made(site, site.elem(), {operands[0]}, {Operator::root},
                 [](const Texts& in) { return "rsqrt_of<number_t>(" + in[0] + ")"; })};
  return {made(site, site.elem(), operands, {Operator::power},
               [](const Texts& in) { return "pow_of<number_t>(" + in[0] + ", " + in[1] + ")"; })};
}

// Integers are counted up to 2³¹.
std::vector<Operand> counted(Site& site) {
  const std::string start = number_text(integer(site.call(), 1, 0)), step = number_text(integer(site.call(), 2, 1));
  return {made(site, site.elem(), {}, {}, [&](const Texts&) { return "i0 * " + step + " + " + start; })};
}

Row predicate(const std::string& of_float, bool of_others) {
  return [of_float, of_others](Site& site) -> std::vector<Operand> {
    const Operand a = site.tensor(0);
    if (is_real(a.elem) && !site.is_fixed())
      return {made(site, Elem::flag, {a}, {Operator::compare},
                   [&](const Texts& in) { return of_float + "(" + in[0] + ")"; })};
    return {splat_of(Elem::flag, site.shape(), of_others)};
  };
}

}  // namespace

void add_elementwise(Table& table) {
  table["prims.add"] = infix("+", Operator::add);
  table["prims.sub"] = infix("-", Operator::add);
  table["prims.mul"] = infix("*", Operator::multiply);
  table["prims.div"] = division;
  table["prims.maximum"] = call_of("larger", Operator::compare);
  table["prims.minimum"] = call_of("smaller", Operator::compare);
  table["prims.fmax"] = call_of("larger_number", Operator::compare);
  table["prims.fmin"] = call_of("smaller_number", Operator::compare);
  for (const auto& [op, sign] : std::vector<std::pair<const char*, const char*>>{{"prims.eq", "=="},
                                                                                 {"prims.ne", "!="},
                                                                                 {"prims.lt", "<"},
                                                                                 {"prims.le", "<="},
                                                                                 {"prims.gt", ">"},
                                                                                 {"prims.ge", ">="}})
    table[op] = infix(sign, Operator::compare);
  table["prims.bitwise_and"] = infix("&", Operator::logic);
  table["prims.bitwise_or"] = infix("|", Operator::logic);
  table["prims.bitwise_xor"] = infix("^", Operator::logic);
  table["prims.bitwise_not"] = inverted;
  table["prims.neg"] = unary("-", Operator::add);
  table["prims.where"] = chosen;
  table["prims.convert_element_type"] = converted;
  table["aten.copy"] = copied;
  table["prims.reciprocal"] = reciprocal;
  table["prims.pow"] = power;
  table["prims.iota"] = counted;
  table["aten.isnan"] = predicate("std::isnan", false);
  table["prims.isfinite"] = predicate("std::isfinite", true);
}

}  // namespace spmdx::emit::hls
