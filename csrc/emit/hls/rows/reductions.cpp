// SPDX-License-Identifier: Apache-2.0
// Reductions: sums, products, extremes and variances over dims, and sums along one.
#include <algorithm>

#include "emit/hls/rows/site.h"

namespace spmdx::emit::hls {
namespace {

// Over which dims an input is reduced, and what that means for loops over it.
struct Over {
  std::vector<bool> dims;
  Shape strides;  // of the results, by dims of the input
  int64_t kept = 1, count = 1, distance = 1;
  std::string at, first, last;  // where the result is; whether an iteration is its first or last one
};

Over over(const Shape& shape, const std::vector<bool>& dims) {
  Over made{dims, Shape(shape.size(), 0), 1, 1, 1, {}, "true", "true"};
  bool inside = true;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 1) continue;
    const std::string counter = " && i" + std::to_string(d);
    if (dims[d]) {
      made.count *= shape[d];
      made.first += counter + " == 0";
      made.last += counter + " == " + std::to_string(shape[d] - 1);
      inside = false;
    } else {
      made.strides[d] = made.kept;
      made.kept *= shape[d];
      if (inside) made.distance *= shape[d];
    }
  }
  made.at = "[0][" + index_text(shape, made.strides) + "]";
  return made;
}

Over over(const Site& site, const Operand& a, size_t arg) {
  return over(a.shape, acted_dims(site.call(), arg, a.shape.size()));
}

Nest reading(const Operand& a, Operator op, const Over& of) {
  Nest nest{a.shape, {}, {op}};
  nest.lines = {{"const " + std::string(type_text(a.elem)) + " x = " + read_text(a.number) + ";"}};
  nest.reads = {a.number};
  nest.carries = op;
  nest.distance = of.distance;
  nest.carried = {"kept"};
  return nest;
}

Operand finished(Site& site, Stage stage, Nest nest, uint32_t out) {
  nest.writes.push_back(out);
  stage.once.push_back(std::move(nest));
  site.design.add_stage(std::move(stage));
  Operand made = site.design.of_stream(out);
  made.shape = site.shape();
  return made;
}

// `start` is before the first element; `with` makes one of what was and x.
Operand reduced(Site& site, const Operand& given, const Over& of, Operator op, Elem elem, const std::string& start,
                const Expression& with) {
  const Operand a = as_stream(site.design, given);
  const uint32_t out = result_stream(site, elem);
  const std::string type = type_text(elem), held_at = "kept" + of.at;
  Stage stage = stage_of(site);
  stage.buffers.push_back({"kept", elem, of.kept, 1});
  Nest nest = reading(a, op, of);
  nest.lines.push_back({"const " + type + " old = " + of.first + " ? " + type + "(" + start + ") : " + held_at + ";"});
  nest.lines.push_back({"const " + type + " made = " + type + "(" + with({"old", "x"}) + ");"});
  nest.lines.push_back({held_at + " = made;"});
  Line write = write_line(out, "made");
  write.text = "if (" + of.last + ") " + write.text;
  nest.lines.push_back(write);
  return finished(site, std::move(stage), std::move(nest), out);
}

std::vector<Operand> sum(Site& site) {
  const Operand a = site.tensor(0);
  const Elem elem = is_real(site.elem()) ? Elem::wide : Elem::whole;
  return {reduced(site, a, over(site, a, 1), Operator::add, elem, "0",
                  [](const std::vector<std::string>& in) { return in[0] + " + " + in[1]; })};
}

std::vector<Operand> product_over(Site& site) {
  const Operand a = site.tensor(0);
  return {reduced(site, a, over(site, a, 1), Operator::multiply, site.elem(), "1",
                  [](const std::vector<std::string>& in) { return in[0] + " * " + in[1]; })};
}

Row extreme(bool is_max, bool of_all) {
  return [is_max, of_all](Site& site) -> std::vector<Operand> {
    const Operand a = site.tensor(0);
    const Over of = of_all ? over(a.shape, std::vector<bool>(a.shape.size(), true)) : over(site, a, 1);
    const std::string type = type_text(site.elem());
    const std::string start = (is_max ? "least<" : "most<") + type + ">()";
    return {reduced(site, a, of, Operator::compare, site.elem(), start, [&](const std::vector<std::string>& in) {
      return std::string(is_max ? "larger<" : "smaller<") + type + ">(" + in[0] + ", " + in[1] + ")";
    })};
  };
}

// Of equal ones the first; NaN before all.
std::vector<Operand> extreme_and_place(Site& site, const Operand& given, size_t dim, bool is_max, bool has_value) {
  const Operand a = as_stream(site.design, given);
  std::vector<bool> dims(a.shape.size(), false);
  dims[dim] = true;
  const Over of = over(a.shape, dims);
  Elem elem = a.elem == Elem::wide ? Elem::real : a.elem;
  const auto place = static_cast<uint32_t>(site.design.stages.size());
  const Shape& shape = site.shape();
  const uint32_t value = site.design.add_stream(elem, shape, place);
  const uint32_t where = site.design.add_stream(Elem::whole, shape, place);
  Stage stage = stage_of(site);
  stage.buffers = {{"best", elem, of.kept, 1}, {"where", Elem::whole, of.kept, 1}};
  Nest nest = reading(a, Operator::compare, of);
  nest.carried = {"best", "where"};
  const std::string best = "best" + of.at, sign = is_max ? " > " : " < ";
  nest.lines.push_back(
      {"const bool wins = (" + of.first + ") || (x" + sign + best + ") || (x != x && " + best + " == " + best + ");"});
  nest.lines.push_back({"if (wins) " + best + " = x;"});
  nest.lines.push_back({"if (wins) where" + of.at + " = i" + std::to_string(dim) + ";"});
  for (const auto& [stream, array] : {std::pair{value, "best"}, std::pair{where, "where"}}) {
    Line write = write_line(stream, array + of.at);
    write.text = "if (" + of.last + ") " + write.text;
    nest.lines.push_back(write);
  }
  nest.writes = {value};
  const Operand places = finished(site, std::move(stage), std::move(nest), where);
  Operand values = site.design.of_stream(value);
  values.shape = shape;
  return has_value ? std::vector<Operand>{values, places} : std::vector<Operand>{places};
}

Row place_of_extreme(bool is_max) {
  return [is_max](Site& site) -> std::vector<Operand> {
    Operand a = site.tensor(0);
    const bool over_all = std::holds_alternative<std::monostate>(argument(site.call(), 1));
    if (over_all || a.shape.empty()) a = reshaped(site.design, a, {numel(a.shape)});
    return extreme_and_place(site, a, over_all ? 0 : site.dim(1, a.shape.size()), is_max, false);
  };
}

Row extreme_of_dim(bool is_max) {
  return [is_max](Site& site) -> std::vector<Operand> {
    Operand a = site.tensor(0);
    if (a.shape.empty()) a = reshaped(site.design, a, {1});
    return extreme_and_place(site, a, site.dim(1, a.shape.size()), is_max, true);
  };
}

// The mean of squared distances from the mean, of which `correction` are not free: the input is held for that.
std::vector<Operand> variance(Site& site) {
  const Operand a = as_stream(site.design, site.tensor(0));
  const Over of = over(site, a, 1);
  const double count = static_cast<double>(of.count), free = std::max(0.0, count - real(site.call(), 2, 1));
  if (free == 0) refuse(site, "no element is free");
  const uint32_t out = result_stream(site, Elem::wide);
  Stage stage = stage_of(site);
  stage.buffers = {
      {"held", a.elem, numel(a.shape), 1}, {"total", Elem::wide, of.kept, 1}, {"kept", Elem::wide, of.kept, 1}};
  const std::string flat = "held[0][" + index_text(a.shape, contiguous(a.shape)) + "]";
  Nest sums = reading(a, Operator::add, of);
  sums.carried = {"total"};
  sums.lines.push_back({flat + " = x;"});
  sums.lines.push_back({"total" + of.at + " = (" + of.first + " ? acc_t(0) : total" + of.at + ") + x;"});
  stage.once.push_back(std::move(sums));
  Nest squares{a.shape, {}, {Operator::multiply, Operator::add, Operator::multiply, Operator::add, Operator::multiply}};
  squares.carries = Operator::add;
  squares.distance = of.distance;
  squares.carried = {"kept"};
  squares.lines = {{"const number_t off = number_t(" + flat + " - total" + of.at + " * " +
                    literal(site.design, Elem::real, 1 / count) + ");"},
                   {"const acc_t made = (" + of.first + " ? acc_t(0) : kept" + of.at + ") + off * off;"},
                   {"kept" + of.at + " = made;"}};
  Line write = write_line(out, "acc_t(made * " + literal(site.design, Elem::real, 1 / free) + ")");
  write.text = "if (" + of.last + ") " + write.text;
  squares.lines.push_back(write);
  return {finished(site, std::move(stage), std::move(squares), out)};
}

// Each element is the sum of those before it and itself.
std::vector<Operand> sum_along(Site& site) {
  const Operand a = as_stream(site.design, site.tensor(0));
  if (a.shape.empty()) return {a};
  const auto dim = static_cast<size_t>(site.dim(1, a.shape.size()));
  std::vector<bool> dims(a.shape.size(), false);
  dims[dim] = true;
  const Over of = over(a.shape, dims);
  const Elem elem = is_real(site.elem()) ? Elem::wide : Elem::whole;
  const uint32_t out = result_stream(site, elem);
  Stage stage = stage_of(site);
  stage.buffers.push_back({"kept", elem, of.kept, 1});
  Nest nest = reading(a, Operator::add, of);
  const std::string type = type_text(elem);
  nest.lines.push_back({"const " + type + " made = (" + of.first + " ? " + type + "(0) : kept" + of.at + ") + x;"});
  nest.lines.push_back({"kept" + of.at + " = made;"});
  nest.lines.push_back(write_line(out, "made"));
  return {finished(site, std::move(stage), std::move(nest), out)};
}

}  // namespace

void add_reductions(Table& table) {
  table["prims.sum"] = sum;
  table["prims.prod"] = product_over;
  table["prims.amax"] = table["aten.amax"] = extreme(true, false);
  table["prims.amin"] = table["aten.amin"] = extreme(false, false);
  table["aten.max"] = extreme(true, true);
  table["aten.min"] = extreme(false, true);
  table["aten.max.dim"] = extreme_of_dim(true);
  table["aten.min.dim"] = extreme_of_dim(false);
  table["aten.argmax"] = place_of_extreme(true);
  table["aten.argmin"] = place_of_extreme(false);
  table["prims.var"] = variance;
  table["aten.cumsum"] = sum_along;
}

}  // namespace spmdx::emit::hls
