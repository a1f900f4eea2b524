// SPDX-License-Identifier: Apache-2.0
// Products of matrices: the left one comes row by row, the right one is held.
#include "emit/hls/rows/site.h"

namespace spmdx::emit::hls {
namespace {

struct Sizes {
  int64_t batch, rows, inner, columns;
};

// [batch, rows, inner] by [batch, inner, columns]: each row adds up `columns` sums at once, in lanes, and gives them.
std::vector<Operand> product(Site& site, const Sizes& of) {
  Design& design = site.design;
  const Operand a = as_stream(design, site.tensor(0));
  const Operand b = apart_from(design, site.tensor(1), {a});
  if (!is_real(a.elem) || !is_real(b.elem)) refuse(site, "integers are multiplied");
  const uint32_t out = result_stream(site, Elem::wide);
  const int64_t lanes = lanes_of(design, of.columns), parts = of.columns / lanes;
  Stage stage = stage_of(site);
  const std::string right = in_lanes(design, stage, b, {of.batch, of.inner, parts, lanes}, 3, "right");
  stage.buffers.push_back({"sums", Elem::wide, parts, lanes});
  stage.buffers.push_back({"x", Elem::real, 0, 1});
  stage.repeats = of.batch * of.rows;
  Nest adds{{of.inner, parts}, {}, {Operator::multiply, Operator::add}};
  const std::string row =
      of.batch == 1 ? "i0" : "(r / " + number_text(of.rows) + " * " + number_text(of.inner) + " + i0)";
  const std::string at = parts == 1 ? row : row + " * " + number_text(parts) + " + i1";
  adds.lines = {{"if (i1 == 0) x = " + read_text(a.number) + ";"},
                {"sums[u][i1] = (i0 == 0 ? acc_t(0) : sums[u][i1]) + x * " + right + "[u][" + at + "];"}};
  adds.lanes = lanes;
  adds.lanes_from = 1;
  adds.carries = Operator::add;
  adds.distance = parts;
  adds.carried = {"sums"};
  adds.reads = {a.number};
  Nest gives{{parts, lanes}, {write_line(out, "sums[i1][i0]")}, {}};
  gives.writes = {out};
  stage.repeated = {std::move(adds), std::move(gives)};
  design.add_stage(std::move(stage));
  return {design.of_stream(out)};
}

std::vector<Operand> mm(Site& site) {
  const Shape a = site.tensor(0).shape, b = site.tensor(1).shape;
  return product(site, {1, a[0], a[1], b[1]});
}

std::vector<Operand> bmm(Site& site) {
  const Shape a = site.tensor(0).shape, b = site.tensor(1).shape;
  return product(site, {a[0], a[1], a[2], b[2]});
}

std::vector<Operand> mv(Site& site) {
  const Shape a = site.tensor(0).shape;
  return product(site, {1, a[0], a[1], 1});
}

std::vector<Operand> dot(Site& site) { return product(site, {1, 1, site.tensor(0).shape[0], 1}); }

}  // namespace

void add_products(Table& table) {
  table["aten.mm"] = mm;
  table["aten.bmm"] = bmm;
  table["aten.mv"] = mv;
  table["aten.dot"] = dot;
}

}  // namespace spmdx::emit::hls
