// SPDX-License-Identifier: Apache-2.0
// Planes: each part of a cut dim takes rows from its neighbours (the halo), and computes its own rows completely.
#include "rules/stencils/planes.h"

#include <algorithm>
#include <numeric>

#include "graph/args.h"
#include "graph/rows.h"
#include "rules/build/blocks.h"
#include "rules/build/fits.h"
#include "rules/build/letters.h"
#include "rules/build/parts.h"
#include "rules/rule/row.h"
#include "rules/stencils/stencil.h"

namespace spmdx::rules {
namespace {

// How many times its even share the largest part does, over all cut dims.
double unevenness(const Call& inner, const Stencil& stencil, const Call& call) {
  double times = 1;
  const std::vector<int64_t> dims = integers(call, kStencilDims), parts = integers(call, kStencilParts);
  for (size_t i = 0; i < dims.size(); ++i) {
    const Windows windows = windows_of(inner, stencil, static_cast<size_t>(dims[i]));
    const int64_t rows = stencil.owns_points() ? windows.points : windows.field;
    if (rows > 0)
      times *= static_cast<double>(part_of(rows, parts[i], 0).extent * parts[i]) / static_cast<double>(rows);
  }
  return times;
}

// Emits a spmdx.halo: for each part the rows that it needs, one part after the other, each as long as the longest.
ValueId with_halo(OpBuilder& maths, ValueId value, size_t dim, const Windows& windows, bool owns_points,
                  int64_t parts) {
  std::vector<int64_t> starts, lengths;
  for (int64_t i = 0; i < parts; ++i) {
    const Range rows = needed(windows, owns_points, parts, i);
    starts.push_back(rows.start);
    lengths.push_back(rows.extent);
  }
  TensorType type{maths.dtype(value), maths.shape(value)};
  type.shape.at(dim) = parts * needed_extent(windows, owns_points, parts);
  return maths.emit(std::string(kHalo), {TensorArg{0}, static_cast<int64_t>(dim), starts, lengths}, {value}, {type});
}

}  // namespace

// Spatial dims of a stencil share a loose factor in all tensors; those of other ops may differ in size between tensors.
OpRule planes(const Call& call) {
  const size_t rank = call.inputs.at(0).shape.size(), spatial = row_of(call).dims;
  fits(rank >= spatial && spatial <= 3, "fewer dims than spatial dims in " + call.op);
  const auto stencil = stencil_of(call);
  Letters letters;
  char first = 'A';
  for (size_t i = 0; i < call.inputs.size() + call.outputs.size(); ++i) {
    std::string text = dims(rank - spatial);
    for (size_t d = 0; d < spatial; ++d, ++first) {
      const bool alike = stencil && windows_of(call, *stencil, d).divisible();
      text += alike ? std::string{static_cast<char>('x' + d), '~'} : std::string{first, '!'};
    }
    (i < call.inputs.size() ? letters.inputs : letters.outputs).push_back(text);
  }
  return from_letters(call, letters);
}

// The rule of the op that spmdx.stencil runs, in which each cut dim has a loose factor that counts its parts.
OpRule stencil(const Call& call) {
  const Call inner = stencil_call(call);
  const Stencil stencil = *stencil_of(inner);
  const Row& row = row_of(inner);
  OpRule rule = row.family(inner);
  const double flops = all_flops(rule);
  if (row.linearity != Linearity::none) {
    rule.linearity = row.linearity;
    rule.linear_inputs = row.linear_inputs;
  }
  const bool summed = std::all_of(stencil.results.begin(), stencil.results.end(), [](char c) { return c == '-'; });
  const size_t spatial = spatial_dims(inner), rank = call.inputs[0].shape.size();
  const std::vector<int64_t> dims = integers(call, kStencilDims), parts = integers(call, kStencilParts);
  for (size_t i = 0; i < dims.size(); ++i) {
    const size_t dim = rank - spatial + static_cast<size_t>(dims[i]);
    Factor& factor = rule.factors.at(static_cast<size_t>(sole_factor(rule.inputs[0], dim, call)));
    factor = {parts[i], FactorKind::pass, Reduction::none, true};
    if (summed) factor = {parts[i], FactorKind::reduce, Reduction::sum, true};
  }
  if (rule.product) set_all_flops(rule, flops * unevenness(inner, stencil, call));
  return rule;
}

// Sets the first local part of each cut dim. An operand with halos has equally many rows for each part, so its local
// start tells the part.
void stencil_first(const Call& call, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  const Call inner = stencil_call(call);
  const Stencil stencil = *stencil_of(inner);
  const size_t spatial = spatial_dims(inner);
  const std::vector<int64_t> dims = integers(call, kStencilDims), parts = integers(call, kStencilParts);
  std::vector<int64_t> first(dims.size(), 0);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Side side = stencil.operand(i);
    if (side == Side::none || on_points(side) == stencil.owns_points()) continue;
    for (size_t d = 0; d < dims.size(); ++d) {
      const size_t dim = inputs[i].size() - spatial + static_cast<size_t>(dims[d]);
      first[d] = inputs[i][dim].start / (call.inputs[i].shape[dim] / parts[d]);
    }
  }
  args.at(kStencilFirst) = first;
}

// spmdx.halo(x, dim, starts, lengths)
OpRule halo(const Call& call) {
  return parts_of_dim(call, static_cast<size_t>(integer(call, kHaloDim, 0)),
                      static_cast<int64_t>(integers(call, kHaloStarts).size()));
}

// Keeps the starts and lengths of the local parts; starts count from the first local row of the operand.
void halo_parts(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args) {
  const auto dim = static_cast<size_t>(integer(call, kHaloDim, 0));
  const std::vector<int64_t> starts = integers(call, kHaloStarts), lengths = integers(call, kHaloLengths);
  const int64_t extent = call.outputs[0].shape[dim] / static_cast<int64_t>(starts.size());
  const auto first = outputs.at(0).at(dim).start / extent, count = outputs[0][dim].extent / extent;
  std::vector<int64_t> here(starts.begin() + first, starts.begin() + first + count);
  for (int64_t& start : here) start -= inputs.at(0).at(dim).start;
  args.at(kHaloStarts) = std::move(here);
  args.at(kHaloLengths) = std::vector<int64_t>(lengths.begin() + first, lengths.begin() + first + count);
}

std::vector<CutDim> cut_dims(OpBuilder& maths, const Call& call, const Values& inputs) {
  const Stencil stencil = *stencil_of(call);
  const size_t spatial = spatial_dims(call), rank = call.inputs.at(0).shape.size();
  std::vector<CutDim> cuts;
  for (size_t s = 0; s < spatial; ++s) {
    const Windows windows = windows_of(call, stencil, s);
    if (!windows.divisible() || windows.identity()) continue;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (stencil.operand(i) == Side::none || !maths.is_cut(inputs[i], rank - spatial + s)) continue;
      cuts.push_back({s, maths.parts(inputs[i], rank - spatial + s)});
      break;
    }
  }
  return cuts;
}

Values in_parts(OpBuilder& maths, const Call& call, Values inputs, const std::vector<CutDim>& cuts) {
  const Stencil stencil = *stencil_of(call);
  const size_t spatial = spatial_dims(call), rank = call.inputs.at(0).shape.size();
  const bool owns_points = stencil.owns_points();
  std::vector<int64_t> dims, parts, field, points;
  for (const CutDim& cut : cuts) {
    const Windows windows = windows_of(call, stencil, cut.spatial);
    dims.push_back(static_cast<int64_t>(cut.spatial));
    parts.push_back(cut.parts);
    field.push_back(windows.field);
    points.push_back(windows.points);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Side side = stencil.operand(i);
      if (side != Side::none && on_points(side) != owns_points)
        inputs[i] = with_halo(maths, inputs[i], rank - spatial + cut.spatial, windows, owns_points, cut.parts);
    }
  }
  std::vector<Arg> args = {call.op, dims, parts, std::vector<int64_t>(dims.size(), 0), field, points};
  args.insert(args.end(), call.args.begin(), call.args.end());
  const ValueId made = maths.emit("spmdx.stencil", std::move(args), std::move(inputs), call.outputs);
  Values results(call.outputs.size());
  std::iota(results.begin(), results.end(), made);
  return results;
}

Values expand_stencil(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const std::vector<CutDim> cuts = cut_dims(maths, maths.call(), node.inputs);
  return cuts.empty() ? unchanged(maths, node) : in_parts(maths, maths.call(), node.inputs, cuts);
}

}  // namespace spmdx::rules
