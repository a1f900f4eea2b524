// SPDX-License-Identifier: Apache-2.0
// Activations whose parts may be beyond the range of a fixed point where they themselves are not.
#include "emit/hls/rows/site.h"

namespace spmdx::emit::hls {
namespace {

using Texts = std::vector<std::string>;

Operand number(const Site& site, double of) { return splat_of(Elem::real, site.shape(), of); }

std::vector<Operator> cost(const Site& site, const std::vector<Operator>& of_float) {
  return site.is_fixed() ? std::vector<Operator>{Operator::table, Operator::table} : of_float;
}

std::vector<Operand> sigmoid(Site& site) {
  const Operand x = site.in(0, Elem::real, site.shape());
  return {elementwise(site.design, site.op(), site.elem(), site.shape(), {x},
                      cost(site, {Operator::add, Operator::exp, Operator::add, Operator::divide}),
                      [](const Texts& in) { return "sigmoid_of<number_t>(" + in[0] + ")"; })};
}

std::vector<Operand> softplus(Site& site) {
  const double beta = real(site.call(), 1, 1), threshold = real(site.call(), 2, 20);
  if (beta == 0) refuse(site, "beta is 0");
  const Operand x = site.in(0, Elem::real, site.shape());
  return {
      elementwise(site.design, site.op(), site.elem(), site.shape(),
                  {x, number(site, beta), number(site, 1 / beta), number(site, threshold)},
                  cost(site, {Operator::multiply, Operator::exp, Operator::log, Operator::divide, Operator::compare}),
                  [](const Texts& in) {
                    return "softplus_of<number_t>(" + in[0] + ", " + in[1] + ", " + in[2] + ", " + in[3] + ")";
                  })};
}

// A sixth of the product of both: the product alone has more bits than a number.
std::vector<Operand> hardswish(Site& site) {
  const Operand x = site.in(0, Elem::real, site.shape());
  const bool is_fixed = site.is_fixed();
  return {elementwise(site.design, site.op(), site.elem(), site.shape(),
                      {x, number(site, 3), number(site, 0), number(site, 6), number(site, 1.0 / 6)},
                      {Operator::add, Operator::compare, Operator::multiply, Operator::multiply},
                      [is_fixed](const Texts& in) {
                        const std::string part = "smaller<number_t>(larger<number_t>(" + in[0] + " + " + in[1] + ", " +
                                                 in[2] + "), " + in[3] + ")";
                        return in[0] + " * " + part + (is_fixed ? " * " + in[4] : " / " + in[3]);
                      })};
}

}  // namespace

void add_activations(Table& table) {
  table["aten.sigmoid"] = sigmoid;
  table["aten.softplus"] = softplus;
  table["aten.hardswish"] = hardswish;
}

}  // namespace spmdx::emit::hls
