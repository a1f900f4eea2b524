// SPDX-License-Identifier: Apache-2.0
// Rules of ops on planes (pooling, upsampling, padding): batch and channels pass; spatial dims are cut in parts that
// exchange halos where the op is a stencil, and stay whole where not.
#include <algorithm>

#include "base/error.h"
#include "graph/rows.h"
#include "rules/families.h"
#include "rules/fits.h"
#include "rules/row.h"
#include "rules/stencil.h"

namespace spmdx {
namespace {

int sole_factor(const TensorFactors& factors, size_t dim, const Call& call) {
  internal_check(factors.at(dim).size() == 1, "a dim of parts without a factor in " + call.op);
  return factors[dim][0];
}

// Rows of a part of the side that parts own, over all cut dims.
double rows_of_part(const Call& inner, const Stencil& stencil, const Call& call) {
  double rows = 1;
  const std::vector<int64_t> dims = integers(call, kStencilDims), parts = integers(call, kStencilParts);
  for (size_t i = 0; i < dims.size(); ++i) {
    const Windows windows = windows_of(inner, stencil, static_cast<size_t>(dims[i]));
    rows *= static_cast<double>(part_of(stencil.owns_points() ? windows.points : windows.field, parts[i], 0).extent);
  }
  return rows;
}

}  // namespace

// Spatial dims of a stencil are cut alike in all tensors; of other ops they have sizes of their own in each tensor.
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

// The op's own rule, whose cut dims are so many parts.
OpRule stencil(const Call& call) {
  const Call inner = stencil_call(call);
  const Stencil stencil = *stencil_of(inner);
  const Row& row = row_of(inner);
  OpRule rule = row.family(inner);
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
  const double flops = std::max(rule.flops_per_element, row.flops);
  if (flops >= 2) rule.flops_per_element = flops * rows_of_part(inner, stencil, call);
  return rule;
}

// (…, first part here, …): the side that is not owned has equally many rows for each part.
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

// The dim, of another size in the result, is cut into so many parts or whole; all others pass.
OpRule parts_of_dim(const Call& call, size_t dim, int64_t parts) {
  std::string text = dims(call.inputs[0].shape.size());
  text.insert(dim + 1, "~");
  OpRule rule = from_letters(call, {{text}, {text}});
  rule.factors.at(static_cast<size_t>(sole_factor(rule.inputs[0], dim, call))) = {parts, FactorKind::pass,
                                                                                  Reduction::none, true};
  return rule;
}

// spmdx.halo(x, dim, starts, lengths)
OpRule halo(const Call& call) {
  return parts_of_dim(call, static_cast<size_t>(integer(call, kHaloDim, 0)),
                      static_cast<int64_t>(integers(call, kHaloStarts).size()));
}

// Where no rows come from elsewhere: the parts that are here, counted from the first row that is here.
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

}  // namespace spmdx
