// SPDX-License-Identifier: Apache-2.0
// Joins: tensors side by side, with a border, and rows by their numbers.
#include <algorithm>

#include "emit/hls/rows/site.h"

namespace spmdx::emit::hls {
namespace {

int64_t product(const Shape& shape, size_t from, size_t to) {
  int64_t made = 1;
  for (size_t d = from; d < to; ++d) made *= shape[d];
  return made;
}

std::vector<Operand> joined(Site& site) {
  std::vector<Operand> parts;
  const size_t rank = site.shape().size();
  for (const Operand& part : site.tensors(0))
    if (part.shape.size() == rank && numel(part.shape))
      parts.push_back(apart_from(site.design, as_stream(site.design, part), parts));
  const auto dim = static_cast<size_t>(site.dim(1, rank));
  const uint32_t out = result_stream(site, site.elem());
  Stage stage = stage_of(site);
  stage.repeats = product(site.shape(), 0, dim);
  for (const Operand& part : parts) {
    Nest nest{{product(part.shape, dim, rank)}, {write_line(out, read_text(part.number))}, {}};
    nest.reads = {part.number};
    nest.writes = {out};
    stage.repeated.push_back(std::move(nest));
  }
  site.design.add_stage(std::move(stage));
  return {site.design.of_stream(out)};
}

// The part of a tensor that a negative padding leaves.
Operand cut(Site& site, const Operand& a, std::vector<int64_t>& low, std::vector<int64_t>& high) {
  Shape shape = a.shape, strides = contiguous(a.shape);
  int64_t offset = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    shape[d] += std::min<int64_t>(low[d], 0) + std::min<int64_t>(high[d], 0);
    offset -= std::min<int64_t>(low[d], 0) * strides[d];
    low[d] = std::max<int64_t>(low[d], 0);
    high[d] = std::max<int64_t>(high[d], 0);
  }
  if (shape == a.shape) return a;
  const Operand dense = a.kind == Operand::Kind::rom ? reshaped(site.design, a, a.shape) : a;
  return at_strides(site.design, "cut", dense, shape, strides, offset);
}

std::vector<Operand> padded(Site& site) {
  const std::vector<int64_t> pads = integers(site.call(), 1);
  const size_t rank = site.shape().size();
  std::vector<int64_t> low(rank, 0), high(rank, 0);
  for (size_t i = 0; i + 1 < pads.size(); i += 2) {
    low[rank - 1 - i / 2] = pads[i];
    high[rank - 1 - i / 2] = pads[i + 1];
  }
  const Operand a = as_stream(site.design, cut(site, site.tensor(0), low, high));
  const uint32_t out = result_stream(site, site.elem());
  std::string inside = "true";
  for (size_t d = 0; d < rank; ++d) {
    const std::string at = " && i" + std::to_string(d);
    if (low[d]) inside += at + " >= " + std::to_string(low[d]);
    if (high[d]) inside += at + " < " + std::to_string(low[d] + a.shape[d]);
  }
  const std::string type = type_text(site.elem());
  const std::string with = literal(site.design, site.elem(), real(site.call(), 2, 0));
  Nest nest{site.shape(),
            {write_line(out, inside + " ? " + type + "(" + read_text(a.number) + ") : " + type + "(" + with + ")")},
            {Operator::logic}};
  nest.reads = {a.number};
  nest.writes = {out};
  Stage stage = stage_of(site);
  stage.once.push_back(std::move(nest));
  site.design.add_stage(std::move(stage));
  return {site.design.of_stream(out)};
}

// What reads `a` at places of one dim, which a held tensor of integers says; negative ones count from the end.
Operand read_at(Site& site, Operand a, const Operand& at, int64_t size, const Shape& trips, const Shape& of_index,
                const Shape& of_others, int64_t stride) {
  const Elem elem = site.elem();
  if (!a.is_stream()) a = reshaped(site.design, a, a.shape);
  const Operand index = apart_from(site.design, at, {a});
  const uint32_t out = result_stream(site, elem);
  Stage stage = stage_of(site);
  const std::string places = held(site.design, stage, index, "index");
  const std::string data = held(site.design, stage, a, "x");
  Nest nest{trips, {}, {Operator::add}};
  nest.lines = {{"const int at = " + places + "[0][" + index_text(trips, of_index) + "];"},
                write_line(out, data + "[0][(at < 0 ? at + " + std::to_string(size) + " : at) * " +
                                    std::to_string(stride) + " + " + index_text(trips, of_others) + "]")};
  nest.writes = {out};
  stage.once.push_back(std::move(nest));
  site.design.add_stage(std::move(stage));
  return site.design.of_stream(out);
}

// One dim is indexed, so that the others stay where they are.
std::vector<Operand> indexed(Site& site) {
  const Operand a = site.tensor(0);
  const std::vector<Operand> given = site.tensors(1);
  const auto is_one = [](const Operand& one) { return one.kind != Operand::Kind::none; };
  const auto found = std::ranges::find_if(given, is_one);
  if (std::ranges::count_if(given, is_one) != 1 || found->elem != Elem::whole)
    refuse(site, "other than one dim is indexed by integers");
  const auto dim = static_cast<size_t>(found - given.begin());
  const size_t rank = a.shape.size(), places = found->shape.size();
  const int64_t inner = product(a.shape, dim + 1, rank), outer = product(a.shape, 0, dim);
  const Shape trips{outer, numel(found->shape), inner};
  const Operand index = places && !found->is_stream() ? reshaped(site.design, *found, found->shape) : *found;
  return {read_at(site, a, index, a.shape[dim], trips, {0, 1, 0}, {inner * a.shape[dim], 0, 1}, inner)};
}

std::vector<Operand> gathered(Site& site) {
  const Operand a = site.tensor(0), index = site.tensor(2);
  if (a.shape.empty()) refuse(site, "a scalar has no dim");
  const int64_t dim = site.dim(1, a.shape.size());
  Shape others = contiguous(a.shape);
  const int64_t stride = others[dim];
  others[dim] = 0;
  return {read_at(site, a, index, a.shape[dim], index.shape, contiguous(index.shape), others, stride)};
}

}  // namespace

void add_joins(Table& table) {
  table["prims.cat"] = table["aten.cat"] = joined;
  table["aten.constant_pad_nd"] = padded;
  table["aten.index.Tensor"] = table["aten._unsafe_index.Tensor"] = indexed;
  table["aten.gather"] = gathered;
}

}  // namespace spmdx::emit::hls
