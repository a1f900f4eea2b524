// SPDX-License-Identifier: Apache-2.0
// Build: texts of what stages read, and views.
#include "emit/hls/build.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "base/error.h"

namespace spmdx::emit::hls {

std::string number_text(int64_t number) { return std::to_string(number); }

std::string index_text(const Shape& shape, const Shape& strides, int64_t offset, size_t first) {
  std::string text;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1 || strides[d] == 0) continue;
    std::string term = "i" + std::to_string(d + first);
    if (std::abs(strides[d]) != 1) term += " * " + std::to_string(std::abs(strides[d]));
    text += text.empty() ? (strides[d] < 0 ? "-" : "") + term : (strides[d] < 0 ? " - " : " + ") + term;
  }
  if (text.empty()) return std::to_string(offset);
  if (offset) text += (offset < 0 ? " - " : " + ") + std::to_string(std::abs(offset));
  return text;
}

namespace {

// Bits of a constant: as many behind the first one as a number has, and some more; what is beyond all sums stays so.
Number holding(const Number& of, double& number) {
  constexpr double kBeyondSums = 0x1p40;
  constexpr int kMore = 4, kMostBits = 64;
  number = std::clamp(number, -kBeyondSums, kBeyondSums);
  int exponent = 0;
  std::frexp(number, &exponent);
  Number held = wide(of);
  const double exact = std::ldexp(number, held.fraction());
  const bool is_fine = exact == std::floor(exact) || held.fraction() + exponent >= of.width + kMore;
  if (is_fine && exponent < held.whole) return held;
  held.whole = std::max(1, exponent + 2);
  const int fraction = std::max(2 * of.fraction(), of.width + kMore - exponent);
  held.width = std::min(kMostBits, held.whole + fraction);
  return held;
}

}  // namespace

std::string literal(const Design& design, Elem elem, double number) {
  const Number& of = design.options.number;
  if (elem == Elem::flag) return number != 0 ? "true" : "false";
  if (elem == Elem::whole) return std::to_string(static_cast<int64_t>(number));
  if (std::isinf(number)) return number > 0 ? "most<number_t>()" : "least<number_t>()";
  if (!of.is_fixed && std::isnan(number)) return "number_t(NAN)";
  if (std::isnan(number))
    throw ShardingError("a constant is no number. Expected one that a fixed point has. Leave the op out.");
  std::string type = "acc_t";
  if (of.is_fixed) {
    const Number held = holding(of, number), usual = wide(of);
    if (held.width != usual.width || held.whole != usual.whole)
      type = "ap_fixed<" + std::to_string(held.width) + ", " + std::to_string(held.whole) + ", AP_RND>";
  }
  char text[40];
  // No integer of C++ here; from 1e17 on all digits are an exponent's.
  const bool is_long = number == std::floor(number) && std::abs(number) >= 0x1p31 && std::abs(number) < 1e17;
  std::snprintf(text, sizeof text, is_long ? "(%.1f)" : "(%.17g)", number);
  return type + text;
}

std::string read_text(uint32_t stream) { return "s" + std::to_string(stream) + ".read()"; }

Line write_line(uint32_t stream, const std::string& expression) {
  return {"s" + std::to_string(stream) + ".write(" + expression + ");", stream};
}

int64_t lanes_of(const Design& design, int64_t count) {
  int64_t lanes = std::max<int64_t>(1, std::min(count, design.options.unroll));
  while (count % lanes) --lanes;
  return lanes;
}

Operand splat_of(Elem elem, const Shape& shape, double number) {
  Operand made;
  made.kind = Operand::Kind::splat;
  made.elem = elem;
  made.shape = shape;
  made.splat = number;
  return made;
}

Operand as_stream(Design& design, const Operand& of) {
  if (of.is_stream()) return of;
  return elementwise(design, "constant", of.elem, of.shape, {of}, {},
                     [](const std::vector<std::string>& in) { return in[0]; });
}

std::string held(Design& design, Stage& stage, const Operand& of, const std::string& name) {
  return in_lanes(design, stage, of, {1, numel(of.shape)}, 0, name);
}

std::string in_lanes(Design& design, Stage& stage, const Operand& of, const Shape& trips, size_t lane_dim,
                     const std::string& name) {
  Shape others = trips;
  others.erase(others.begin() + static_cast<int64_t>(lane_dim));
  Shape strides = contiguous(others);
  strides.insert(strides.begin() + static_cast<int64_t>(lane_dim), 0);
  const int64_t lanes = trips[lane_dim], size = numel(others);
  if (of.is_stream()) {
    stage.buffers.push_back({name, of.elem == Elem::wide ? Elem::real : of.elem, size, lanes});
    Nest nest{trips, {}, {}};
    nest.reads = {of.number};
    nest.lines = {{name + "[i" + std::to_string(lane_dim) + "][" + index_text(trips, strides) +
                   "] = " + read_text(of.number) + ";"}};
    stage.once.push_back(std::move(nest));
    return name;
  }
  const std::vector<double> given = elements(design, of);
  Rom rom{of.elem, std::vector<double>(given.size()), lanes};
  for (size_t i = 0; i < given.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), at = 0, lane = 0;
    for (size_t d = trips.size(); d-- > 0; rest /= trips[d]) {
      at += rest % trips[d] * strides[d];
      if (d == lane_dim) lane = rest % trips[d];
    }
    rom.numbers[lane * size + at] = given[i];
  }
  stage.roms.push_back(design.add_rom(std::move(rom)));
  return "w" + std::to_string(stage.roms.back());
}

Operand at_strides(Design& design, const std::string& op, const Operand& of, const Shape& shape, const Shape& strides,
                   int64_t offset) {
  Operand made = of;
  made.shape = shape;
  if (of.kind == Operand::Kind::splat) return made;
  if (of.kind == Operand::Kind::rom) {
    if (!is_contiguous(of)) made.number = design.add_rom({of.elem, elements(design, of)});
    made.offset = (is_contiguous(of) ? of.offset : 0) + offset;
    made.strides = strides;
    return made;
  }
  Stage stage;
  stage.op = op;
  held(design, stage, of, "x");
  const auto place = static_cast<uint32_t>(design.stages.size());
  const uint32_t out = design.add_stream(of.elem == Elem::wide ? Elem::real : of.elem, shape, place);
  Nest nest{shape, {write_line(out, "x[0][" + index_text(shape, strides, offset) + "]")}, {}};
  nest.writes = {out};
  stage.once.push_back(std::move(nest));
  design.add_stage(std::move(stage));
  return design.of_stream(out);
}

Operand apart_from(Design& design, const Operand& of, const std::vector<Operand>& others) {
  const auto is_same = [&](const Operand& other) { return other.is_stream() && other.number == of.number; };
  if (!of.is_stream() || std::ranges::none_of(others, is_same)) return of;
  return at_strides(design, "copy", of, of.shape, contiguous(of.shape), 0);
}

Operand reshaped(Design& design, const Operand& of, const Shape& shape) {
  Operand made = of;
  if (of.kind == Operand::Kind::rom) {
    if (!is_contiguous(of)) {
      made.number = design.add_rom({of.elem, elements(design, of)});
      made.offset = 0;
    }
    made.strides = contiguous(shape);
  }
  made.shape = shape;
  return made;
}

Operand broadcast(Design& design, const Operand& of, const Shape& shape, const std::vector<int64_t>& dims) {
  if (of.shape == shape) return of;
  Shape strides(shape.size(), 0);
  const Shape own = of.kind == Operand::Kind::rom ? of.strides : contiguous(of.shape);
  for (size_t d = 0; d < dims.size(); ++d)
    if (of.shape[d] != 1) strides[dims[d]] = own[d];
  if (of.kind != Operand::Kind::rom && numel(of.shape) == numel(shape)) return reshaped(design, of, shape);
  if (of.kind != Operand::Kind::rom) return at_strides(design, "broadcast", of, shape, strides, 0);
  Operand made = of;
  made.shape = shape;
  made.strides = strides;
  return made;
}

Operand broadcast(Design& design, const Operand& of, const Shape& shape) {
  std::vector<int64_t> dims(of.shape.size());
  std::iota(dims.begin(), dims.end(), static_cast<int64_t>(shape.size() - of.shape.size()));
  return broadcast(design, of, shape, dims);
}

}  // namespace spmdx::emit::hls
