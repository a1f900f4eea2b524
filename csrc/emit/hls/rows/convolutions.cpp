// SPDX-License-Identifier: Apache-2.0
// Convolutions: direct ones. The image and the kernels are held; lanes are channels of the result.
#include "emit/hls/rows/site.h"

namespace spmdx::emit::hls {
namespace {

struct Image {
  int64_t channels, groups, outs, lanes;  // of the result `outs`
  Shape kernel, in, out;                  // of space
  std::vector<int64_t> stride, padding, dilation;
};

Image image_of(Site& site, const Operand& input, const Operand& weight) {
  const size_t dims = input.shape.size() - 2;
  Image of{input.shape[1], integer(site.call(), 8, 1), weight.shape[0], 1, {}, {}, {}, {}, {}, {}};
  if (boolean(site.call(), 6, false)) refuse(site, "it is transposed");
  of.kernel.assign(weight.shape.begin() + 2, weight.shape.end());
  of.in.assign(input.shape.begin() + 2, input.shape.end());
  of.out.assign(site.shape().begin() + 2, site.shape().end());
  of.stride = site.list(3, dims, 1);
  of.padding = site.list(4, dims, 0);
  of.dilation = site.list(5, dims, 1);
  of.lanes = lanes_of(site.design, of.outs / of.groups);
  return of;
}

// Counters: i0 of channels, then those of the kernel, then those of the result.
std::vector<Line> lines_of(const Image& of, const std::string& x, const std::string& weights) {
  const size_t dims = of.in.size();
  const int64_t in_group = of.channels / of.groups, steps = of.outs / of.lanes;
  const std::string channel = "(r / " + number_text(steps) + " * " + number_text(of.channels) + " + r % " +
                              number_text(steps) + " / " + number_text(steps / of.groups) + " * " +
                              number_text(in_group) + " + i0)";
  std::vector<Line> lines;
  std::string inside = "true", place = channel,
              kernel = "(r % " + number_text(steps) + " * " + number_text(in_group) + " + i0)";
  std::string first = "i0 == 0", pixel = "0";
  for (size_t d = 0; d < dims; ++d) {
    const std::string at = "y" + std::to_string(d), k = "i" + std::to_string(1 + d);
    const std::string p = "i" + std::to_string(1 + dims + d);
    lines.push_back({"const int " + at + " = " + p + " * " + number_text(of.stride[d]) + " + " + k + " * " +
                     number_text(of.dilation[d]) + " - " + number_text(of.padding[d]) + ";"});
    inside += " && " + at + " >= 0 && " + at + " < " + number_text(of.in[d]);
    place = "(" + place + " * " + number_text(of.in[d]) + " + " + at + ")";
    kernel = "(" + kernel + " * " + number_text(of.kernel[d]) + " + " + k + ")";
    first += " && " + k + " == 0";
    pixel = "(" + pixel + " * " + number_text(of.out[d]) + " + " + p + ")";
  }
  lines.push_back({"const number_t x = " + inside + " ? number_t(" + x + "[0][" + place + "]) : number_t(0);"});
  lines.push_back({"const int p = " + pixel + ";"});
  lines.push_back({"sums[u][p] = (" + first + " ? acc_t(0) : sums[u][p]) + x * " + weights + "[u][" + kernel + "];"});
  return lines;
}

Operand convolved(Site& site, const Operand& input, const Operand& weight) {
  Design& design = site.design;
  const Image of = image_of(site, input, weight);
  const int64_t pixels = numel(of.out), steps = of.outs / of.lanes, each = numel(weight.shape) / of.outs;
  const uint32_t out = result_stream(site, Elem::wide);
  Stage stage = stage_of(site);
  const std::string x = held(design, stage, input, "image");
  const std::string weights = in_lanes(design, stage, weight, {steps, of.lanes, each}, 1, "kernel");
  stage.buffers.push_back({"sums", Elem::wide, pixels, of.lanes});
  stage.repeats = input.shape[0] * steps;
  Shape trips{of.channels / of.groups};
  trips.insert(trips.end(), of.kernel.begin(), of.kernel.end());
  trips.insert(trips.end(), of.out.begin(), of.out.end());
  Nest adds{trips, lines_of(of, x, weights), {Operator::multiply, Operator::add}};
  adds.lanes = of.lanes;
  adds.lanes_from = adds.lines.size() - 1;
  adds.carries = Operator::add;
  adds.distance = pixels;
  adds.carried = {"sums"};
  Nest gives{{of.lanes, pixels}, {write_line(out, "sums[i0][i1]")}, {}};
  gives.writes = {out};
  stage.repeated = {std::move(adds), std::move(gives)};
  design.add_stage(std::move(stage));
  return design.of_stream(out);
}

std::vector<Operand> convolution(Site& site) {
  const Operand input = site.tensor(0), weight = site.tensor(1);
  if (!is_real(input.elem)) refuse(site, "integers are multiplied");
  const Operand made = convolved(site, input.is_stream() ? input : reshaped(site.design, input, input.shape),
                                 apart_from(site.design, weight, {input}));
  if (!site.has_tensor(2)) return {made};
  const Operand bias = broadcast(site.design, site.tensor(2), site.shape(), {1});
  return {elementwise(site.design, "bias", Elem::real, site.shape(), {made, bias}, {Operator::add},
                      [](const std::vector<std::string>& in) { return in[0] + " + " + in[1]; })};
}

}  // namespace

void add_convolutions(Table& table) { table["aten.convolution"] = convolution; }

}  // namespace spmdx::emit::hls
