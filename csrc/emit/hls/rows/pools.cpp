// SPDX-License-Identifier: Apache-2.0
// Pools: of each plane, the positions of the window one after the other, and at each of them all pixels of the result.
#include <algorithm>

#include "emit/hls/rows/site.h"

namespace spmdx::emit::hls {
namespace {

struct Pool {
  std::vector<int64_t> size, stride, padding, dilation;
  Shape in, out;  // of space
  int64_t planes = 1;
  std::vector<Line> lines;  // y0, y1 … of the input, `at` within the plane, and p of the result
  std::string inside = "true", first = "true", last = "true";
  Shape trips() const {
    Shape made{planes};
    made.insert(made.end(), size.begin(), size.end());
    made.insert(made.end(), out.begin(), out.end());
    return made;
  }
};

Pool pool_of(const Site& site, const Operand& a, size_t dims, bool has_dilation) {
  Pool of;
  of.size = site.list(1, dims, 1);
  of.stride = integers(site.call(), 2).empty() ? of.size : site.list(2, dims, 1);
  of.padding = site.list(3, dims, 0);
  of.dilation = has_dilation ? site.list(4, dims, 1) : std::vector<int64_t>(dims, 1);
  const auto space = static_cast<int64_t>(dims);
  of.in.assign(a.shape.end() - space, a.shape.end());
  of.out.assign(site.shape().end() - space, site.shape().end());
  of.planes = numel(a.shape) / numel(of.in);
  std::string at = "0", p = "0";
  for (size_t d = 0; d < dims; ++d) {
    const std::string y = "y" + std::to_string(d), k = "i" + std::to_string(1 + d);
    const std::string o = "i" + std::to_string(1 + dims + d);
    of.lines.push_back({"const int " + y + " = " + o + " * " + number_text(of.stride[d]) + " + " + k + " * " +
                        number_text(of.dilation[d]) + " - " + number_text(of.padding[d]) + ";"});
    of.inside += " && " + y + " >= 0 && " + y + " < " + number_text(of.in[d]);
    at = "(" + at + " * " + number_text(of.in[d]) + " + " + y + ")";
    p = "(" + p + " * " + number_text(of.out[d]) + " + " + o + ")";
    of.first += " && " + k + " == 0";
    of.last += " && " + k + " == " + number_text(of.size[d] - 1);
  }
  of.lines.push_back({"const int at = " + at + ";"});
  of.lines.push_back({"const int p = " + p + ";"});
  of.lines.push_back({"const bool inside = " + of.inside + ";"});
  return of;
}

Nest nest_of(const Pool& of, Operator op, std::vector<std::string> carried) {
  Nest nest{of.trips(), of.lines, {op}};
  nest.carries = op;
  nest.distance = numel(of.out);
  nest.carried = std::move(carried);
  return nest;
}

Line at_the_end(const Pool& of, uint32_t stream, const std::string& expression) {
  Line line = write_line(stream, expression);
  line.text = "if (" + of.last + ") " + line.text;
  return line;
}

Operand held_input(Site& site) {
  const Operand a = site.tensor(0);
  return a.is_stream() ? a : reshaped(site.design, a, a.shape);
}

// The largest of each window, and where it is within its plane.
Row max_pool(size_t dims) {
  return [dims](Site& site) -> std::vector<Operand> {
    Design& design = site.design;
    const Operand a = held_input(site);
    const Pool of = pool_of(site, a, dims, true);
    const uint32_t value = result_stream(site, Elem::real), where = result_stream(site, Elem::whole);
    Stage stage = stage_of(site);
    const std::string x = held(design, stage, a, "image");
    stage.buffers.push_back({"best", Elem::real, numel(of.out), 1});
    stage.buffers.push_back({"where", Elem::whole, numel(of.out), 1});
    Nest nest = nest_of(of, Operator::compare, {"best", "where"});
    nest.lines.push_back({"const number_t x = inside ? number_t(" + x + "[0][i0 * " + number_text(numel(of.in)) +
                          " + at]) : number_t(least<number_t>());"});
    nest.lines.push_back({"const bool wins = inside && (x > best[0][p] || x != x || where[0][p] < 0);"});
    nest.lines.insert(nest.lines.begin() + static_cast<int64_t>(of.lines.size()),
                      Line{"if (" + of.first + ") where[0][p] = -1;"});
    nest.lines.push_back({"if (wins) best[0][p] = x;"});
    nest.lines.push_back({"if (wins) where[0][p] = at;"});
    nest.lines.push_back(at_the_end(of, value, "best[0][p]"));
    nest.lines.push_back(at_the_end(of, where, "where[0][p]"));
    nest.writes = {value, where};
    stage.once.push_back(std::move(nest));
    design.add_stage(std::move(stage));
    return {design.of_stream(value), design.of_stream(where)};
  };
}

// By how many elements the sum of each window is divided.
std::vector<double> divisors(const Site& site, const Pool& of) {
  const int64_t told = integer(site.call(), 6, 0), pixels = numel(of.out);
  const bool with_padding = boolean(site.call(), 5, true);
  std::vector<double> found;
  for (int64_t p = 0; p < pixels; ++p) {
    int64_t rest = p, count = 1;
    for (size_t d = of.out.size(); d-- > 0; rest /= of.out[d]) {
      const int64_t start = rest % of.out[d] * of.stride[d] - of.padding[d];
      const int64_t end = std::min(start + of.size[d], of.in[d] + of.padding[d]);
      count *= with_padding ? end - start : std::min(end, of.in[d]) - std::max<int64_t>(start, 0);
    }
    found.push_back(static_cast<double>(told ? told : count));
  }
  return found;
}

// Sums by these: a product where it is exact enough, which it is of one number, and of floats.
Operand shares(Site& site, const Operand& sums, const Shape& pixels, std::vector<double> by) {
  const bool is_one = std::ranges::all_of(by, [&](double number) { return number == by[0]; });
  const bool divides = site.is_fixed() && !is_one;
  if (!divides)
    for (double& number : by) number = 1 / number;
  Operand factor = splat_of(Elem::wide, site.shape(), by[0]);
  if (!is_one) {
    factor.kind = Operand::Kind::rom;
    factor.shape = pixels;
    factor.number = site.design.add_rom({Elem::wide, std::move(by)});
    factor.strides = contiguous(pixels);
    factor = broadcast(site.design, factor, site.shape());
  }
  return elementwise(
      site.design, "share", Elem::real, site.shape(), {sums, factor}, {divides ? Operator::divide : Operator::multiply},
      [divides](const std::vector<std::string>& in) { return in[0] + (divides ? " / " : " * ") + in[1]; });
}

Row average_pool(size_t dims) {
  return [dims](Site& site) -> std::vector<Operand> {
    Design& design = site.design;
    const Operand a = held_input(site);
    const Pool of = pool_of(site, a, dims, false);
    const uint32_t out = result_stream(site, Elem::wide);
    Stage stage = stage_of(site);
    const std::string x = held(design, stage, a, "image");
    stage.buffers.push_back({"sums", Elem::wide, numel(of.out), 1});
    Nest nest = nest_of(of, Operator::add, {"sums"});
    nest.lines.push_back({"const number_t x = inside ? number_t(" + x + "[0][i0 * " + number_text(numel(of.in)) +
                          " + at]) : number_t(0);"});
    nest.lines.push_back({"const acc_t made = (" + of.first + " ? acc_t(0) : sums[0][p]) + x;"});
    nest.lines.push_back({"sums[0][p] = made;"});
    nest.lines.push_back(at_the_end(of, out, "made"));
    nest.writes = {out};
    stage.once.push_back(std::move(nest));
    design.add_stage(std::move(stage));
    return {shares(site, design.of_stream(out), of.out, divisors(site, of))};
  };
}

}  // namespace

void add_pools(Table& table) {
  table["aten.max_pool2d_with_indices"] = max_pool(2);
  table["aten.max_pool3d_with_indices"] = max_pool(3);
  table["aten.avg_pool2d"] = average_pool(2);
  table["aten.avg_pool3d"] = average_pool(3);
}

}  // namespace spmdx::emit::hls
