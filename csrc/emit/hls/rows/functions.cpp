// SPDX-License-Identifier: Apache-2.0
// Functions of one number: of floats those of C++, of fixed points by tables.
#include "emit/hls/rows/site.h"

namespace spmdx::emit::hls {
namespace {

Row function(const std::string& name, Operator op, bool has_table = true) {
  return [name, op, has_table](Site& site) -> std::vector<Operand> {
    if (site.is_fixed() && !has_table) refuse(site, "there is no table of it for a fixed point");
    if (!is_real(site.tensor(0).elem) && op == Operator::round && name != "abs_of" && name != "sign_of")
      return {site.tensor(0)};
    const std::string type = type_text(is_real(site.elem()) ? Elem::real : site.elem());
    return {elementwise(site.design, site.op(), site.elem(), site.shape(), {site.tensor(0)}, {op},
                        [&](const std::vector<std::string>& in) { return name + "<" + type + ">(" + in[0] + ")"; })};
  };
}

}  // namespace

void add_functions(Table& table) {
  table["prims.exp"] = function("exp_of", Operator::exp);
  table["prims.exp2"] = function("exp2_of", Operator::exp);
  table["prims.expm1"] = function("expm1_of", Operator::exp);
  table["prims.log"] = function("log_of", Operator::log);
  table["prims.log2"] = function("log2_of", Operator::log);
  table["prims.log10"] = function("log10_of", Operator::log);
  table["prims.log1p"] = function("log1p_of", Operator::log);
  table["prims.sqrt"] = function("sqrt_of", Operator::root);
  table["prims.rsqrt"] = function("rsqrt_of", Operator::root);
  table["prims.tanh"] = function("tanh_of", Operator::table);
  table["prims.erf"] = function("erf_of", Operator::table);
  table["prims.erfc"] = function("erfc_of", Operator::table);
  table["prims.sin"] = function("sin_of", Operator::table);
  table["prims.cos"] = function("cos_of", Operator::table);
  for (const char* name : {"tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh"})
    table[std::string("prims.") + name] = function(std::string(name) + "_of", Operator::table, false);
  for (const char* name : {"floor", "ceil", "round", "trunc", "abs", "sign"})
    table[std::string("prims.") + name] = function(std::string(name) + "_of", Operator::round);
}

}  // namespace spmdx::emit::hls
