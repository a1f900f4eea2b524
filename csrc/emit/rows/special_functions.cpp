// SPDX-License-Identifier: Apache-2.0
// Special functions: by CHLO, which is written as StableHLO by whoever compiles, and some by others.
#include <cmath>

#include "emit/rows/site.h"

namespace spmdx::emit {
namespace {

Row of_one(std::string_view name) {
  return [name](Site& site) -> std::vector<Tensor> { return {site.write.unary(name, site.tensor(0))}; };
}

Row of_two(std::string_view name) {
  return [name](Site& site) -> std::vector<Tensor> {
    const TensorType& type = site.result();
    return {site.write.binary(name, site.in(0, type), site.in(1, type))};
  };
}

Row logarithm(double base) {
  return [base](Site& site) -> std::vector<Tensor> {
    Writer& write = site.write;
    const Tensor natural = write.unary("log", site.tensor(0));
    return {write.binary("multiply", natural, write.like(natural, 1 / std::log(base)))};
  };
}

std::vector<Tensor> power_of_two(Site& site) {
  const Tensor a = site.tensor(0);
  return {site.write.binary("power", site.write.like(a, 2), a)};
}

std::vector<Tensor> arctangent(Site& site) {
  const Tensor a = site.tensor(0);
  return {site.write.binary("atan2", a, site.write.like(a, 1))};
}

// The larger one times a root of what is at most 2, so that no square is out of range.
std::vector<Tensor> hypotenuse(Site& site) {
  Writer& write = site.write;
  const Tensor a = write.unary("abs", site.tensor(0)), b = write.unary("abs", site.in(1, a.type));
  const Tensor large = write.binary("maximum", a, b), small = write.binary("minimum", a, b);
  const Tensor zero = write.like(a, 0), infinity = write.like(a, INFINITY);
  const Tensor ratio = write.binary("divide", small, large);
  const Tensor one = write.binary("add", write.binary("multiply", ratio, ratio), write.like(a, 1));
  const Tensor found = write.binary("multiply", large, write.unary("sqrt", one));
  const Tensor some = write.select(write.compare("EQ", large, zero), zero, found);
  const Tensor is_infinite = write.binary("or", write.compare("EQ", a, infinity), write.compare("EQ", b, infinity));
  return {write.select(is_infinite, infinity, some)};
}

}  // namespace

void add_special_functions(Table& table) {
  for (const auto& [op, name] :
       std::vector<std::pair<const char*, const char*>>{{"prims.acos", "chlo.acos"},
                                                        {"prims.acosh", "chlo.acosh"},
                                                        {"prims.asin", "chlo.asin"},
                                                        {"prims.asinh", "chlo.asinh"},
                                                        {"prims.atanh", "chlo.atanh"},
                                                        {"prims.cosh", "chlo.cosh"},
                                                        {"prims.sinh", "chlo.sinh"},
                                                        {"prims.tan", "tan"},
                                                        {"prims.erf", "chlo.erf"},
                                                        {"prims.erfc", "chlo.erfc"},
                                                        {"prims.erf_inv", "chlo.erf_inv"},
                                                        {"prims.lgamma", "chlo.lgamma"},
                                                        {"prims.digamma", "chlo.digamma"},
                                                        {"prims.bessel_i1e", "chlo.bessel_i1e"}})
    table[op] = of_one(name);
  table["prims.zeta"] = of_two("chlo.zeta");
  table["prims.nextafter"] = of_two("chlo.next_after");
  table["prims.log2"] = logarithm(2);
  table["prims.log10"] = logarithm(10);
  table["prims.exp2"] = power_of_two;
  table["prims.atan"] = arctangent;
  table["prims.hypot"] = hypotenuse;
}

}  // namespace spmdx::emit
